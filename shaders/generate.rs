//! Writes the Rust side of the kernels from their indexes. Part of build.rs.

use std::fmt::Write as _;

use crate::header::{ACCESS_AXIS, Axis, Point, point_text};
use crate::index::{Index, ParamInfo};

/// The text of `kernels.rs`: the table of templates, then one module each.
///
/// # Errors
/// The template that cannot be expressed, and why.
pub fn kernels(indexes: &[Index]) -> Result<String, String> {
    let mut text = "/// All templates; a [`super::TemplateId`] is a place here.\n\
        pub static TEMPLATES: &[super::Template] = &[\n"
        .to_owned();
    for index in indexes {
        text += &table_entry(index).map_err(|fault| format!("shaders/{}.comp: {fault}", index.template))?;
    }
    text += "];\n";
    for (number, index) in indexes.iter().enumerate() {
        text += &module(number, index);
    }
    Ok(text)
}

fn table_entry(index: &Index) -> Result<String, String> {
    let push = |access: &str| {
        let layout = index.push.iter().find(|push| push.access == access)?;
        Some(format!(
            "super::PushLayout {{ size_bytes: {}, params_at_bytes: {} }}",
            layout.size_bytes, layout.params_at_bytes
        ))
    };
    let operands: String = index
        .operands
        .iter()
        .map(|o| {
            format!(
                "super::OperandInfo {{ name: {:?}, access: super::OperandAccess::{} }}, ",
                o.name,
                camel(&o.access)
            )
        })
        .collect();
    let specs: String = index
        .header
        .specs
        .iter()
        .map(|s| format!("super::SpecInfo {{ id: {}, name: {:?}, default: {} }}, ", s.id, s.name, s.default))
        .collect();
    let local_id = |name: &String| index.header.specs.iter().find(|s| s.name == *name).map(|s| s.id);
    let local_ids: Vec<u32> = index.header.local.iter().filter_map(local_id).collect();
    let mut first_word = 0;
    let mut variants = String::new();
    for variant in &index.variants {
        variants += &variant_entry(index, &variant.point, first_word, variant.words)?;
        first_word += variant.words;
    }
    Ok(format!(
        "    super::Template {{ name: {:?}, operands: &[{operands}], params_bytes: {}, push_ssbo: {}, push_bda: {}, \
         specs: &[{specs}], local_ids: &{local_ids:?}, shared_bytes: {}, variants: &[\n{variants}    ], \
         bundle: include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/shaders/bundle/{}.bin\")) }},\n",
        index.template,
        params_bytes(&index.params),
        push("ssbo").ok_or("it has no ssbo variant")?,
        push("bda").map_or("None".to_owned(), |layout| format!("Some({layout})")),
        index.header.shared_bytes,
        index.template,
    ))
}

fn variant_entry(index: &Index, point: &Point, first_word: u32, words: u32) -> Result<String, String> {
    let access = point.iter().find(|(axis, _)| axis == ACCESS_AXIS).map_or("", |(_, value)| value);
    if !["ssbo", "bda"].contains(&access) {
        return Err(format!("access={access} is unknown"));
    }
    let needs: Vec<String> =
        index.header.needs_of(point).iter().map(|n| format!("super::Need::{}", camel(n))).collect();
    Ok(format!(
        "        super::Variant {{ axes: {:?}, point: {}, access: super::Access::{}, needs: super::Needs::of(&[{}]), \
         first_word: {first_word}, words: {words} }},\n",
        point_text(point),
        point_number(&index.header.axes, point)?,
        camel(access),
        needs.join(", "),
    ))
}

/// Number of a point over all axes but access, the last axis varying fastest.
fn point_number(axes: &[Axis], point: &Point) -> Result<u16, String> {
    let mut number = 0usize;
    for axis in axes.iter().filter(|axis| axis.name != ACCESS_AXIS) {
        let value = point.iter().find(|(name, _)| *name == axis.name).map(|(_, value)| value);
        let place = axis.values.iter().position(|known| Some(known) == value);
        number = number * axis.values.len() + place.ok_or(format!("a variant has no {}", axis.name))?;
    }
    u16::try_from(number).map_err(|_| "it has more than 65536 points".to_owned())
}

fn module(number: usize, index: &Index) -> String {
    let mut text = String::new();
    for line in &index.header.doc {
        let _ = writeln!(text, "/// {line}");
    }
    let _ = writeln!(text, "pub mod {} {{", rust_name(&index.template));
    text += "use super::super::{Dispatch, KernelRef, Operand, OperandAccess, Region, TemplateId};\n";
    axes(&mut text, number, index);
    spec(&mut text, index);
    for names in &index.header.names {
        enumeration(&mut text, "number", &names.name, &names.values);
    }
    params(&mut text, index);
    operands(&mut text, index);
    text += "/// One launch of the kernel.\n\
        pub fn dispatch(axes: Axes, spec: Spec, operands: Operands, params: Params, groups: [u32; 3], \
        label: impl Into<String>) -> Dispatch {\n\
        Dispatch { kernel: axes.kernel(), operands: operands.in_slot_order(), params: params.to_bytes(), \
        spec: spec.to_pairs(), groups, label: label.into(), ops: 0, choice: None }\n}\n}\n";
    text
}

fn axes(text: &mut String, number: usize, index: &Index) {
    let axes: Vec<&Axis> = index.header.axes.iter().filter(|axis| axis.name != ACCESS_AXIS).collect();
    for axis in &axes {
        enumeration(text, "axis", &axis.name, &axis.values);
    }
    let fields: Vec<String> = axes
        .iter()
        .map(|axis| format!("/// Value of the axis.\npub {}: {},", rust_name(&axis.name), camel(&axis.name)))
        .collect();
    let variant = axes.iter().fold("0".to_owned(), |sum, axis| match sum.as_str() {
        "0" => format!("self.{} as u16", rust_name(&axis.name)),
        _ => format!("({sum}) * {} + self.{} as u16", axis.values.len(), rust_name(&axis.name)),
    });
    let _ = writeln!(
        text,
        "/// A point of the axes, access left open.\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\n\
         pub struct Axes {{\n{}\n}}\nimpl Axes {{\n/// The kernel at this point.\n\
         pub const fn kernel(self) -> KernelRef {{ KernelRef {{ template: TemplateId({number}), variant: {variant} }} }}\n}}",
        fields.join("\n")
    );
}

fn spec(text: &mut String, index: &Index) {
    let (mut fields, mut defaults, mut pairs) = (String::new(), String::new(), String::new());
    for spec in &index.header.specs {
        let name = rust_name(&spec.name);
        let kind = if spec.values.is_empty() { "u32".to_owned() } else { camel(&spec.name) };
        let _ = writeln!(
            fields,
            "/// Spec constant {}, {} by default.\npub {name}: {kind},",
            spec.id, spec.default
        );
        let default = match spec.values.get(spec.default as usize) {
            Some(value) => format!("{kind}::{}", variant_name(&spec.name, value)),
            None => spec.default.to_string(),
        };
        let _ = write!(defaults, "{name}: {default}, ");
        let cast = if spec.values.is_empty() { "" } else { " as u32" };
        let _ = write!(pairs, "({}, self.{name}{cast}), ", spec.id);
        if !spec.values.is_empty() {
            enumeration(text, "spec constant", &spec.name, &spec.values);
        }
    }
    let _ = writeln!(
        text,
        "/// Spec constants.\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\npub struct Spec {{\n{fields}}}\n\
         impl Default for Spec {{ fn default() -> Self {{ Spec {{ {defaults} }} }} }}\n\
         impl Spec {{ fn to_pairs(self) -> Vec<(u32, u32)> {{ vec![{pairs}] }} }}"
    );
}

/// An enum whose members count from 0 in the order of `values`.
fn enumeration(text: &mut String, what: &str, name: &str, values: &[String]) {
    let member = |value: &String| format!("/// `{name} = {value}`.\n{},\n", variant_name(name, value));
    let members: String = values.iter().map(member).collect();
    let kind = camel(name);
    let all: String = values.iter().map(|value| format!("{kind}::{}, ", variant_name(name, value))).collect();
    let _ = writeln!(
        text,
        "/// Values of the {what} `{name}`.\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\n#[repr(u16)]\n\
         pub enum {kind} {{\n{members}}}\n\
         impl {kind} {{\n/// All values, in order.\npub const ALL: &'static [{kind}] = &[{all}];\n\
         const NAMES: &'static [&'static str] = &{values:?};\n\
         /// The name in the header.\n\
         pub fn name(self) -> &'static str {{ Self::NAMES.get(self as usize).copied().unwrap_or(\"\") }}\n\
         /// The value of that name.\n\
         pub fn named(name: &str) -> Option<{kind}> {{\n\
         Self::ALL.get(Self::NAMES.iter().position(|known| *known == name)?).copied() }}\n}}",
    );
}

fn params(text: &mut String, index: &Index) {
    let mut fields = String::new();
    let mut writes = String::new();
    let mut written_bytes = 0;
    for p in &index.params {
        let scalar = match p.scalar.as_str() {
            "int" => "i32",
            "float" => "f32",
            _ => "u32",
        };
        let vector =
            if p.components > 1 { format!("[{scalar}; {}]", p.components) } else { scalar.to_owned() };
        let kind = if p.elements > 0 { format!("[{vector}; {}]", p.elements) } else { vector };
        let name = rust_name(&p.name);
        let _ = writeln!(fields, "/// Parameter of the kernel.\npub {name}: {kind},");
        let value = match (p.components > 1, p.elements > 0) {
            (false, false) => format!("[self.{name}].iter()"),
            (true, true) => format!("self.{name}.iter().flatten()"),
            _ => format!("self.{name}.iter()"),
        };
        if p.offset_bytes != written_bytes {
            let _ = writeln!(writes, "bytes.resize({}, 0);", p.offset_bytes);
        }
        written_bytes = p.offset_bytes + param_bytes(p);
        let _ = writeln!(writes, "bytes.extend({value}.flat_map(|v| v.to_le_bytes()));");
    }
    let binding = if index.params.is_empty() { "let" } else { "let mut" };
    let _ = writeln!(
        text,
        "/// Parameters of one launch.\n#[derive(Debug, Clone, Copy, PartialEq, Default)]\npub struct Params {{\n{fields}}}\n\
         impl Params {{ fn to_bytes(self) -> Vec<u8> {{\n{binding} bytes = Vec::with_capacity({});\n{writes}bytes\n}} }}",
        params_bytes(&index.params)
    );
}

fn operands(text: &mut String, index: &Index) {
    let mut fields = String::new();
    let mut list = String::new();
    for operand in &index.operands {
        let name = rust_name(&operand.name);
        let _ = writeln!(fields, "/// Operand, {}.\npub {name}: Region,", operand.access.replace('_', " "));
        let _ = write!(
            list,
            "Operand {{ region: self.{name}, access: OperandAccess::{} }}, ",
            camel(&operand.access)
        );
    }
    let _ = writeln!(
        text,
        "/// Operands of one launch.\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\npub struct Operands {{\n{fields}}}\n\
         impl Operands {{ fn in_slot_order(self) -> Vec<Operand> {{ vec![{list}] }} }}"
    );
}

fn params_bytes(params: &[ParamInfo]) -> u32 {
    params.iter().map(|p| p.offset_bytes + param_bytes(p)).max().unwrap_or(0)
}

fn param_bytes(param: &ParamInfo) -> u32 {
    param.components * 4 * param.elements.max(1)
}

/// `row_major` to `RowMajor`, `log1p` to `Log1p`, `storage_16bit` to `Storage16Bit`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    for word in name.split('_') {
        let mut upper = true;
        for letter in word.chars() {
            out.push(if upper { letter.to_ascii_uppercase() } else { letter });
            upper = upper && letter.is_ascii_digit();
        }
    }
    out
}

/// The enum member for a value; a bare number gets the enum's name before it.
fn variant_name(name: &str, value: &str) -> String {
    let member = camel(value);
    if member.starts_with(|c: char| c.is_ascii_digit()) { camel(name) + &member } else { member }
}

/// A name that is no Rust keyword.
fn rust_name(name: &str) -> String {
    let keywords =
        ["type", "where", "loop", "move", "mod", "ref", "match", "fn", "let", "use", "as", "dyn", "box"];
    if keywords.contains(&name) { format!("{name}_") } else { name.to_owned() }
}
