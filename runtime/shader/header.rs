//! Reads the `//!` header of a GLSL template: its axes, spec constants, work-group ids and needs.
//!
//! Shared with build.rs and the shader compiler through `#[path]`, so this file uses only `std` and
//! must never know the rest of the crate.
//!
//! ```text
//! //! Softmax over the last dim.                  any other line: documentation
//! //! axis dtype = f32 f16                        a build axis; the text is compiled once per value
//! //! spec 0 round_mode = 0                       a spec constant: id, name, default
//! //! values op = neg abs exp                      names of a spec constant's values, from 0 up
//! //! names step = add mul                         names of other numbers, from 0 up: STEP_ADD, STEP_MUL
//! //! local local_x                               the spec constants that give the work-group size
//! //! shared 1024                                 bytes of shared memory at the default spec values
//! //! needs dtype=f16 : storage_16bit             device features, for the points that match
//! //! skip dtype=i32 mode=mean                    points that are not compiled
//! ```

use std::collections::BTreeSet;

/// The axis that says how a kernel reaches its buffers; every template has it, and callers do not choose it.
pub const ACCESS_AXIS: &str = "access";

/// Names that a `needs` line may hold, in the order of `Need`.
pub const NEEDS: [&str; 11] = [
    "buffer_device_address",
    "storage_16bit",
    "storage_8bit",
    "shader_float16",
    "shader_int8",
    "shader_int16",
    "shader_int64",
    "integer_dot",
    "subgroup",
    "cooperative_matrix",
    "storage_buffers_5",
];

/// A build axis: the template is compiled once for each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Name as in the header, snake case.
    pub name: String,
    /// Values in header order.
    pub values: Vec<String>,
}

/// A specialisation constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecConstant {
    /// `constant_id` in the GLSL.
    pub id: u32,
    /// Name as in the header, snake case.
    pub name: String,
    /// Value when the pipeline sets none.
    pub default: u32,
    /// Names of its values, from 0 up; empty for a plain number.
    pub values: Vec<String>,
}

/// One value for each axis, as `(axis, value)` in axis order; also used for partial selections.
pub type Point = Vec<(String, String)>;

/// Device features that the points matching `when` need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedRule {
    /// Axis values that must all match; empty matches every point.
    pub when: Point,
    /// Feature names.
    pub needs: Vec<String>,
}

/// What the header of one template declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Documentation lines.
    pub doc: Vec<String>,
    /// Build axes in header order.
    pub axes: Vec<Axis>,
    /// Specialisation constants in header order.
    pub specs: Vec<SpecConstant>,
    /// Named numbers that are no spec constant's values, such as operation codes that a kernel reads from a buffer.
    pub names: Vec<Axis>,
    /// Names of the spec constants that give the work-group size in x, y and z.
    pub local: Vec<String>,
    /// Shared memory in bytes at the default spec values.
    pub shared_bytes: u32,
    /// Feature rules.
    pub needs: Vec<NeedRule>,
    /// Partial points that are not compiled.
    pub skips: Vec<Point>,
}

impl Header {
    /// Reads the leading `//!` lines of a template and checks them as a whole.
    ///
    /// # Errors
    /// The line and the fault, or what the header lacks.
    pub fn parse(source: &str) -> Result<Header, String> {
        let mut header = Header::default();
        for (number, line) in source.lines().enumerate() {
            let Some(text) = line.strip_prefix("//!") else {
                break;
            };
            header.line(text.trim()).map_err(|fault| format!("line {}: {fault}", number + 1))?;
        }
        header.check()?;
        Ok(header)
    }

    /// Takes one header line, without its `//!`.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn line(&mut self, text: &str) -> Result<(), String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "axis" => self.axes.push(parse_axis(rest)?),
            "spec" => self.specs.push(parse_spec(rest)?),
            "values" => self.values(rest)?,
            "names" => self.names.push(parse_axis(rest)?),
            "local" => self.local = rest.split_whitespace().map(str::to_owned).collect(),
            "shared" => self.shared_bytes = parse_u32(rest)?,
            "needs" => self.needs.push(parse_needs(rest)?),
            "skip" => self.skips.push(parse_point(rest)?),
            _ => self.doc.push(text.to_owned()),
        }
        Ok(())
    }

    fn values(&mut self, text: &str) -> Result<(), String> {
        let named = parse_axis(text)?;
        let spec = self.specs.iter_mut().find(|spec| spec.name == named.name);
        spec.ok_or(format!("`{}` is no spec constant declared above", named.name))?.values = named.values;
        Ok(())
    }

    /// Writes the header lines, without `//!` and without the documentation.
    pub fn to_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.axes.iter().map(|a| format!("axis {} = {}", a.name, a.values.join(" "))));
        lines.extend(self.specs.iter().map(|s| format!("spec {} {} = {}", s.id, s.name, s.default)));
        let named = self.specs.iter().filter(|spec| !spec.values.is_empty());
        lines.extend(named.map(|s| format!("values {} = {}", s.name, s.values.join(" "))));
        lines.extend(self.names.iter().map(|n| format!("names {} = {}", n.name, n.values.join(" "))));
        if !self.local.is_empty() {
            lines.push(format!("local {}", self.local.join(" ")));
        }
        if self.shared_bytes > 0 {
            lines.push(format!("shared {}", self.shared_bytes));
        }
        for rule in &self.needs {
            let when = if rule.when.is_empty() { String::new() } else { point_text(&rule.when) + " " };
            lines.push(format!("needs {when}: {}", rule.needs.join(" ")));
        }
        lines.extend(self.skips.iter().map(|point| format!("skip {}", point_text(point))));
        lines
    }

    /// Checks what no single line can show.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), String> {
        let access = self.axes.iter().find(|axis| axis.name == ACCESS_AXIS);
        match access {
            None => return Err("no `//! axis access = ssbo bda` line".to_owned()),
            Some(axis) if axis.values.first().map(String::as_str) != Some("ssbo") => {
                return Err("the first value of axis access must be ssbo".to_owned());
            }
            Some(_) => {}
        }
        unique("axis", self.axes.iter().map(|axis| axis.name.clone()))?;
        let names = self.names.iter().map(|names| names.name.clone());
        unique("spec constant", self.specs.iter().map(|spec| spec.name.clone()).chain(names))?;
        unique("spec id", self.specs.iter().map(|spec| spec.id.to_string()))?;
        for spec in self.specs.iter().filter(|spec| !spec.values.is_empty()) {
            if spec.values.len() <= spec.default as usize {
                return Err(format!("the default of spec constant {} has no name", spec.name));
            }
        }
        if self.local.is_empty() || self.local.len() > 3 {
            return Err("a `//! local` line must name one to three spec constants".to_owned());
        }
        for name in &self.local {
            if !self.specs.iter().any(|spec| &spec.name == name) {
                return Err(format!("local names `{name}`, which no spec line declares"));
            }
        }
        let points = self.needs.iter().map(|rule| &rule.when).chain(&self.skips);
        for (axis, value) in points.flatten() {
            let known = self.axes.iter().any(|a| &a.name == axis && a.values.contains(value));
            if !known {
                return Err(format!("`{axis}={value}` is no value of any axis"));
            }
        }
        Ok(())
    }

    /// All points that are compiled, the last axis varying fastest.
    pub fn points(&self) -> Vec<Point> {
        let mut points: Vec<Point> = vec![Vec::new()];
        for axis in &self.axes {
            let mut longer = Vec::with_capacity(points.len() * axis.values.len());
            for point in &points {
                for value in &axis.values {
                    let mut next = point.clone();
                    next.push((axis.name.clone(), value.clone()));
                    longer.push(next);
                }
            }
            points = longer;
        }
        points.retain(|point| !self.skips.iter().any(|skip| matches(point, skip)));
        points
    }

    /// The features that `point` needs, sorted.
    pub fn needs_of(&self, point: &Point) -> BTreeSet<String> {
        let rules = self.needs.iter().filter(|rule| matches(point, &rule.when));
        let mut needs: BTreeSet<String> = rules.flat_map(|rule| rule.needs.iter().cloned()).collect();
        if point.iter().any(|(axis, value)| axis == ACCESS_AXIS && value == "bda") {
            needs.insert("buffer_device_address".to_owned());
        }
        needs
    }
}

/// `axis=value axis=value`.
pub fn point_text(point: &Point) -> String {
    let parts: Vec<String> = point.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    parts.join(" ")
}

/// Reads `axis=value axis=value`.
///
/// # Errors
/// The part that is no such pair.
pub fn parse_point(text: &str) -> Result<Point, String> {
    let pair = |part: &str| match part.split_once('=') {
        Some((axis, value)) if is_name(axis) && is_name(value) => Ok((axis.to_owned(), value.to_owned())),
        _ => Err(format!("expected AXIS=VALUE, found `{part}`")),
    };
    text.split_whitespace().map(pair).collect()
}

fn parse_axis(text: &str) -> Result<Axis, String> {
    let (name, values) = text.split_once('=').ok_or("expected `axis NAME = VALUE ...`")?;
    let axis =
        Axis { name: name.trim().to_owned(), values: values.split_whitespace().map(str::to_owned).collect() };
    match std::iter::once(&axis.name).chain(&axis.values).find(|word| !is_name(word)) {
        Some(word) => Err(format!("`{word}` is no lower-case name")),
        None if axis.values.is_empty() => Err(format!("axis {} has no values", axis.name)),
        None => unique("axis value", axis.values.iter().cloned()).map(|()| axis),
    }
}

fn parse_spec(text: &str) -> Result<SpecConstant, String> {
    let (left, default) = text.split_once('=').ok_or("expected `spec ID NAME = DEFAULT`")?;
    match left.split_whitespace().collect::<Vec<_>>()[..] {
        [id, name] if is_name(name) => Ok(SpecConstant {
            id: parse_u32(id)?,
            name: name.to_owned(),
            default: parse_u32(default)?,
            values: vec![],
        }),
        _ => Err("expected `spec ID NAME = DEFAULT`".to_owned()),
    }
}

fn parse_needs(text: &str) -> Result<NeedRule, String> {
    let (when, needs) = text.split_once(':').ok_or("expected `needs AXIS=VALUE : FEATURE ...`")?;
    let needs: Vec<String> = needs.split_whitespace().map(str::to_owned).collect();
    if needs.is_empty() {
        return Err("no feature after the colon".to_owned());
    }
    if let Some(stranger) = needs.iter().find(|need| !NEEDS.contains(&need.as_str())) {
        return Err(format!("`{stranger}` is none of the features {}", NEEDS.join(" ")));
    }
    Ok(NeedRule { when: parse_point(when)?, needs })
}

fn parse_u32(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("`{}` is no unsigned number", text.trim()))
}

fn matches(point: &Point, selection: &Point) -> bool {
    selection.iter().all(|pair| point.contains(pair))
}

/// Whether a word can be part of a Rust and a GLSL name: lower case, digits, underscores.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn unique(what: &str, names: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.clone()) {
            return Err(format!("{what} `{name}` is declared twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Softmax.\n//! axis dtype = f32 f16\n//! axis access = ssbo bda\n\
        //! spec 0 round_mode = 0\n//! spec 1 local_x = 64\n//! spec 2 op = 1\n//! values op = neg abs\n//! names step = add mul\n//! local local_x\n//! shared 256\n\
        //! needs dtype=f16 : storage_16bit\n//! skip dtype=f16 access=bda\n#include \"lib/access.glsl\"\n//! late\n";

    #[test]
    fn reads_every_kind_of_line_and_stops_at_the_code() {
        let header = Header::parse(SOURCE).unwrap();
        assert_eq!(header.doc, ["Softmax."]);
        assert_eq!(
            header.specs[1],
            SpecConstant { id: 1, name: "local_x".into(), default: 64, values: vec![] }
        );
        assert_eq!((header.shared_bytes, header.local.len()), (256, 1));
        assert_eq!((&*header.names[0].name, &header.names[0].values[1]), ("step", &"mul".to_owned()));
        let points: Vec<String> = header.points().iter().map(point_text).collect();
        assert_eq!(points, ["dtype=f32 access=ssbo", "dtype=f32 access=bda", "dtype=f16 access=ssbo"]);
    }

    #[test]
    fn lines_round_trip() {
        let header = Header::parse(SOURCE).unwrap();
        let mut again = Header { doc: header.doc.clone(), ..Header::default() };
        header.to_lines().iter().for_each(|line| again.line(line).unwrap());
        assert_eq!(header, again);
    }

    #[test]
    fn needs_follow_the_point() {
        let header = Header::parse(SOURCE).unwrap();
        let needs = |text: &str| Vec::from_iter(header.needs_of(&parse_point(text).unwrap()));
        assert_eq!(needs("dtype=f16 access=ssbo"), ["storage_16bit"]);
        assert_eq!(needs("dtype=f32 access=bda"), ["buffer_device_address"]);
    }

    #[test]
    fn faults_name_the_line_or_the_lack() {
        let fault = |from: &str, to: &str| Header::parse(&SOURCE.replace(from, to)).unwrap_err();
        assert!(fault("axis dtype = f32 f16", "axis dtype").starts_with("line 2"));
        assert!(fault("//! axis access = ssbo bda\n", "").contains("axis access"));
        assert!(fault(": storage_16bit", ": half").contains("`half`"));
        assert!(fault("local local_x", "local rows").contains("`rows`"));
        assert!(fault("needs dtype=f16", "needs dtype=f64").contains("dtype=f64"));
        assert!(fault("spec 2 op = 1", "spec 2 op = 2").contains("op has no name"));
        assert!(fault("values op", "values mode").contains("`mode`"));
        assert!(fault("spec 1 local_x", "spec 0 local_x").contains("spec id `0`"));
        assert!(fault("names step", "names op").contains("`op` is declared twice"));
    }
}
