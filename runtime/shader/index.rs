//! The text index of one template: what build.rs and a reviewer need to know of its compiled bundle.
//!
//! Shared with build.rs and the shader compiler through `#[path]`, so this file uses only `std` and
//! its sibling `header`. It never looks into SPIR-V.

use super::header::{Header, Point, parse_point, point_text};

/// Compile options, part of every hash: a change makes every bundle stale.
pub const OPTIONS: &str = "target=vulkan1.1 spirv=1.3 optimize=performance f16_stores=rte";

/// How a kernel uses one operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperandInfo {
    /// Name in the template.
    pub name: String,
    /// `read`, `read_texels`, `write` or `read_write`.
    pub access: String,
}

/// One member of the push block after the operand bases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamInfo {
    /// Name in the template.
    pub name: String,
    /// `uint`, `int` or `float`.
    pub scalar: String,
    /// Components of a vector; 1 for a scalar.
    pub components: u32,
    /// Elements of an array; 0 for no array.
    pub elements: u32,
    /// Byte offset from the first parameter.
    pub offset_bytes: u32,
}

impl ParamInfo {
    /// The type as GLSL writes it: `uint`, `uvec4`, `uint[8]`, `uvec4[2]`.
    fn glsl_type(&self) -> String {
        let prefix = if self.scalar == "float" { "" } else { self.scalar.get(..1).unwrap_or_default() };
        let element = match self.components {
            1 => self.scalar.clone(),
            count => format!("{prefix}vec{count}"),
        };
        if self.elements > 0 { format!("{element}[{}]", self.elements) } else { element }
    }

    fn parse(name: &str, glsl_type: &str, offset: &str) -> Result<ParamInfo, String> {
        let (element, elements) = match glsl_type.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((element, count)) => (element, parse_number(count)?),
            None => (glsl_type, 0),
        };
        let (scalar, components) = match element.split_once("vec") {
            Some(("u", count)) => ("uint", parse_number(count)?),
            Some(("i", count)) => ("int", parse_number(count)?),
            Some(("", count)) => ("float", parse_number(count)?),
            None if ["uint", "int", "float"].contains(&element) => (element, 1),
            _ => return Err(format!("`{glsl_type}` is no type of a parameter")),
        };
        Ok(ParamInfo {
            name: name.to_owned(),
            scalar: scalar.to_owned(),
            components,
            elements,
            offset_bytes: parse_number(offset)?,
        })
    }
}

/// Where one access variant keeps its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushLayout {
    /// Value of the access axis.
    pub access: String,
    /// Bytes of the whole push block.
    pub size_bytes: u32,
    /// Byte offset of the first parameter.
    pub params_at_bytes: u32,
}

/// One compiled point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantInfo {
    /// A value for each axis.
    pub point: Point,
    /// Length of its SPIR-V in the bundle, in 32-bit words.
    pub words: u32,
    /// SPIR-V capabilities of the optimised module, sorted.
    pub capabilities: Vec<String>,
    /// SPIR-V extensions of the optimised module, sorted.
    pub extensions: Vec<String>,
}

/// All that is committed beside a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// Template name: the file name without `.comp`.
    pub template: String,
    /// Hash of the source, its includes, the options and the compiler.
    pub source_hash: u64,
    /// Compiler and version.
    pub compiler: String,
    /// Compile options.
    pub options: String,
    /// The header of the template.
    pub header: Header,
    /// Operands in slot order.
    pub operands: Vec<OperandInfo>,
    /// Push block of each access value.
    pub push: Vec<PushLayout>,
    /// Parameters in order.
    pub params: Vec<ParamInfo>,
    /// Variants in bundle order.
    pub variants: Vec<VariantInfo>,
    /// Hash of the bundle file.
    pub bundle_hash: u64,
}

impl Index {
    /// Writes the index.
    pub fn to_text(&self) -> String {
        let mut lines = vec![
            "# Written by `make shaders`; do not edit.".to_owned(),
            format!("template {}", self.template),
            format!("source_hash {:016x}", self.source_hash),
            format!("compiler {}", self.compiler),
            format!("options {}", self.options),
        ];
        lines.extend(self.header.doc.iter().map(|line| format!("doc {line}").trim_end().to_owned()));
        lines.extend(self.header.to_lines());
        for (slot, operand) in self.operands.iter().enumerate() {
            lines.push(format!("operand {slot} {} {}", operand.name, operand.access));
        }
        for push in &self.push {
            lines.push(format!(
                "push {} size {} params_at {}",
                push.access, push.size_bytes, push.params_at_bytes
            ));
        }
        for p in &self.params {
            lines.push(format!("param {} {} at {}", p.name, p.glsl_type(), p.offset_bytes));
        }
        for v in &self.variants {
            let point = point_text(&v.point);
            let (caps, exts) = (v.capabilities.join(" "), v.extensions.join(" "));
            lines
                .push(format!("variant {point} : words {} : {caps} : {exts}", v.words).trim_end().to_owned());
        }
        lines.push(format!("bundle_hash {:016x}", self.bundle_hash));
        lines.join("\n") + "\n"
    }

    /// Reads an index.
    ///
    /// # Errors
    /// The line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Index, String> {
        let mut index = Index::default();
        for (number, line) in text.lines().enumerate() {
            index.line(line).map_err(|fault| format!("index line {}: {fault}", number + 1))?;
        }
        index.header.check()?;
        if index.template.is_empty() || index.variants.is_empty() || index.push.is_empty() {
            return Err("the index is incomplete".to_owned());
        }
        Ok(index)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" | "#" => {}
            "template" => self.template = rest.to_owned(),
            "source_hash" => self.source_hash = parse_hash(rest)?,
            "bundle_hash" => self.bundle_hash = parse_hash(rest)?,
            "compiler" => self.compiler = rest.to_owned(),
            "options" => self.options = rest.to_owned(),
            "doc" => self.header.doc.push(rest.to_owned()),
            "operand" => self.operands.push(parse_operand(rest)?),
            "push" => self.push.push(parse_push(rest)?),
            "param" => self.params.push(parse_param(rest)?),
            "variant" => self.variants.push(parse_variant(rest)?),
            "axis" | "spec" | "values" | "names" | "local" | "shared" | "needs" | "skip" => {
                self.header.line(line)?;
            }
            _ => return Err(format!("unknown entry `{word}`")),
        }
        Ok(())
    }
}

/// FNV-1a over `bytes`, going on from `seed`; it finds accidents, not attackers.
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The seed of a new hash.
pub const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// Hash of a template: `files` are `(path below shaders/, text)`, the template first, then its includes sorted by path.
pub fn source_hash(files: &[(String, String)], options: &str, compiler: &str) -> u64 {
    let mut hash = HASH_SEED;
    for (path, text) in files {
        hash = hash_bytes(hash, path.as_bytes());
        hash = hash_bytes(hash, b"\0");
        hash = hash_bytes(hash, text.replace("\r\n", "\n").as_bytes());
        hash = hash_bytes(hash, b"\0");
    }
    hash = hash_bytes(hash, options.as_bytes());
    hash = hash_bytes(hash, b"\0");
    hash_bytes(hash, compiler.as_bytes())
}

/// A template's text and those of its includes, found through `read` (path below shaders/ to text).
///
/// # Errors
/// What `read` could not find.
pub fn with_includes(
    template: &str,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Vec<(String, String)>, String> {
    let mut files = vec![(template.to_owned(), read(template)?)];
    let mut next = 0;
    while let Some((_, text)) = files.get(next) {
        let wanted: Vec<String> = text.lines().filter_map(include_path).map(str::to_owned).collect();
        for path in wanted {
            if !files.iter().any(|(known, _)| *known == path) {
                let text = read(&path)?;
                files.push((path, text));
            }
        }
        next += 1;
    }
    if let Some(includes) = files.get_mut(1..) {
        includes.sort();
    }
    Ok(files)
}

/// The path of an `#include "path"` line.
pub fn include_path(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("#include")?.trim().strip_prefix('"')?.strip_suffix('"')
}

fn parse_hash(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is no hash"))
}

fn parse_number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn parse_operand(text: &str) -> Result<OperandInfo, String> {
    match text.split(' ').collect::<Vec<_>>()[..] {
        [_, name, access] => Ok(OperandInfo { name: name.to_owned(), access: access.to_owned() }),
        _ => Err("expected `operand SLOT NAME ACCESS`".to_owned()),
    }
}

fn parse_push(text: &str) -> Result<PushLayout, String> {
    match text.split(' ').collect::<Vec<_>>()[..] {
        [access, "size", size, "params_at", at] => Ok(PushLayout {
            access: access.to_owned(),
            size_bytes: parse_number(size)?,
            params_at_bytes: parse_number(at)?,
        }),
        _ => Err("expected `push ACCESS size N params_at N`".to_owned()),
    }
}

fn parse_param(text: &str) -> Result<ParamInfo, String> {
    match text.split(' ').collect::<Vec<_>>()[..] {
        [name, glsl_type, "at", offset] => ParamInfo::parse(name, glsl_type, offset),
        _ => Err("expected `param NAME TYPE at OFFSET`".to_owned()),
    }
}

fn parse_variant(text: &str) -> Result<VariantInfo, String> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let (point, words, capabilities, extensions) = match parts[..] {
        [point, words, caps, exts] => (point, words, caps, exts),
        [point, words, caps] => (point, words, caps, ""),
        _ => return Err("expected `variant POINT : words N : CAPABILITIES : EXTENSIONS`".to_owned()),
    };
    let words = words.strip_prefix("words ").ok_or("no word count")?;
    let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    Ok(VariantInfo {
        point: parse_point(point)?,
        words: parse_number(words)?,
        capabilities: list(capabilities),
        extensions: list(extensions),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Index {
        let header = Header::parse(
            "//! Adds.\n//!\n//! axis dtype = f32\n//! axis access = ssbo\n//! spec 1 local_x = 64\n//! local local_x\n",
        );
        Index {
            template: "add".into(),
            source_hash: 7,
            compiler: "shaderc 2026.1".into(),
            options: OPTIONS.into(),
            header: header.unwrap(),
            operands: vec![OperandInfo { name: "x".into(), access: "read".into() }],
            push: vec![PushLayout { access: "ssbo".into(), size_bytes: 20, params_at_bytes: 16 }],
            params: vec![ParamInfo {
                name: "n".into(),
                scalar: "uint".into(),
                components: 4,
                elements: 2,
                offset_bytes: 0,
            }],
            variants: vec![VariantInfo {
                point: parse_point("dtype=f32 access=ssbo").unwrap(),
                words: 12,
                capabilities: vec!["Shader".into()],
                extensions: vec![],
            }],
            bundle_hash: 9,
        }
    }

    #[test]
    fn text_round_trips() {
        let index = sample();
        assert_eq!(Index::parse(&index.to_text()).unwrap(), index);
    }

    #[test]
    fn parameter_types_read_as_glsl() {
        for text in ["uint", "int", "float", "uvec4", "ivec2", "vec3", "uint[8]", "vec4[2]"] {
            assert_eq!(ParamInfo::parse("p", text, "0").unwrap().glsl_type(), text);
        }
        assert!(ParamInfo::parse("p", "bvec2", "0").is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        let text = sample().to_text().replace("words 12", "words many");
        assert!(Index::parse(&text).unwrap_err().contains("`many`"));
        assert!(Index::parse("template x\n").is_err());
    }

    #[test]
    fn the_hash_ignores_line_endings_and_sees_everything_else() {
        let hash = |text: &str, options: &str| source_hash(&[("a.comp".into(), text.into())], options, "c");
        assert_eq!(hash("a\r\nb\r\n", "o"), hash("a\nb\n", "o"));
        assert_ne!(hash("a\nb\n", "o"), hash("a\nc\n", "o"));
        assert_ne!(hash("a\nb\n", "o"), hash("a\nb\n", "p"));
    }

    #[test]
    fn includes_are_found_once_and_in_order() {
        let mut read = |path: &str| match path {
            "t.comp" => Ok("#include \"lib/b.glsl\"\n#include \"lib/a.glsl\"\n".to_owned()),
            "lib/b.glsl" => Ok(" #include \"lib/a.glsl\"\n".to_owned()),
            "lib/a.glsl" => Ok("x".to_owned()),
            _ => Err(format!("{path} is missing")),
        };
        let files = with_includes("t.comp", &mut read).unwrap();
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["t.comp", "lib/a.glsl", "lib/b.glsl"]);
    }
}
