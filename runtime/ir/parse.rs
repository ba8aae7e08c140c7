//! Reads the text form of a graph.
//!
//! Constants have no bytes in the text: they are filled with small values that depend on their position
//! only (`((7 i) mod 13 - 6) / 8`), which is enough to see that a rewrite keeps the numbers.

use super::{
    arg::{Arg, IntArg, OpName},
    constant::Constant,
    graph::{Graph, InputKind, OutputKind, OutputSource, TensorType, Type, ValueId},
};
use crate::base::{DType, Error, HostTensor, Result, Scalar, SymExpr, shape};

/// Reads a graph in the form that its `Display` prints.
///
/// # Errors
/// Text that is not in that form, with the line number; names used before they are defined.
pub fn parse_graph(text: &str) -> Result<Graph> {
    let mut graph = Graph::new("");
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        parse_line(&mut graph, line).map_err(|error| error.context(format!("line {}", index + 1)))?;
    }
    Ok(graph)
}

fn parse_line(graph: &mut Graph, line: &str) -> Result<()> {
    let mut cursor = Cursor { rest: line };
    if cursor.take_word("graph") {
        let name = cursor.word()?.to_string();
        *graph = Graph::new(name);
        if cursor.take_word("without") && cursor.take_word("signature") {
            graph.forget_signature();
        }
    } else if cursor.take_word("input") {
        parse_input(graph, &mut cursor)?;
    } else if cursor.take_word("output") {
        parse_output(graph, &mut cursor)?;
    } else {
        parse_node(graph, &mut cursor)?;
    }
    cursor.end()
}

fn parse_input(graph: &mut Graph, cursor: &mut Cursor<'_>) -> Result<()> {
    let (name, ty) = cursor.typed_name()?;
    if !cursor.take("=") {
        graph.add_input(&name, ty, InputKind::User)?;
        return Ok(());
    }
    let kind: fn(_) -> InputKind = match cursor.word()? {
        "parameter" => InputKind::Parameter,
        "buffer" => InputKind::Buffer,
        "lifted" => InputKind::Lifted,
        "derived" => InputKind::Derived,
        other => return Err(bad(format!("`{other}` is no kind of input"))),
    };
    let fqn = cursor.string()?;
    let Type::Tensor(tensor) = &ty else { return Err(bad("a constant is a tensor")) };
    let sizes = tensor
        .sizes
        .iter()
        .map(|size| {
            size.as_const()
                .and_then(|size| usize::try_from(size).ok())
                .ok_or_else(|| bad("a constant has fixed sizes"))
        })
        .collect::<Result<Vec<_>>>()?;
    let values: Vec<f64> = (0..shape::numel(&sizes)?).map(|i| ((7 * i) % 13) as f64 - 6.0).collect();
    let data = if tensor.dtype.is_float() {
        HostTensor::from_f64s(
            tensor.dtype,
            sizes,
            &values.iter().map(|value| value / 8.0).collect::<Vec<_>>(),
        )?
    } else {
        HostTensor::from_f64s(
            tensor.dtype,
            sizes,
            &values.iter().map(|value| value.abs()).collect::<Vec<_>>(),
        )?
    };
    let id = graph.add_constant(Constant::from_tensor(fqn, data));
    graph.add_input(&name, ty, kind(id))?;
    Ok(())
}

fn parse_output(graph: &mut Graph, cursor: &mut Cursor<'_>) -> Result<()> {
    let source = if cursor.rest.starts_with('%') {
        OutputSource::Value(cursor.value(graph)?)
    } else if cursor.take_word("none") {
        OutputSource::None
    } else {
        match cursor.number()? {
            Arg::Int(value) => OutputSource::Scalar(Scalar::Int(value)),
            Arg::Float(value) => OutputSource::Scalar(Scalar::Float(value)),
            Arg::Bool(value) => OutputSource::Scalar(Scalar::Bool(value)),
            _ => return Err(bad("an output is a value, a number or none")),
        }
    };
    let kind = if cursor.take("->") {
        let target = cursor.value(graph)?;
        match graph.input_of(target).map(|input| input.kind) {
            Some(InputKind::User) => OutputKind::InputMutation(target),
            Some(_) => OutputKind::BufferMutation(target),
            None => return Err(bad(format!("`%{}` is no input", graph.value_name(target)))),
        }
    } else {
        OutputKind::User
    };
    graph.add_output(source, kind);
    Ok(())
}

fn parse_node(graph: &mut Graph, cursor: &mut Cursor<'_>) -> Result<()> {
    let mut outputs = Vec::new();
    while cursor.rest.starts_with('%') {
        outputs.push(cursor.typed_name()?);
        if !cursor.take(",") {
            cursor.expect("=")?;
            break;
        }
    }
    let op = OpName::new(cursor.word()?);
    cursor.expect("(")?;
    let mut args = Vec::new();
    while !cursor.take(")") {
        let name = cursor.word()?.to_string();
        cursor.expect("=")?;
        args.push((name, cursor.arg(graph)?));
        cursor.take(",");
    }
    let name = if cursor.take_word("as") {
        cursor.word()?.to_string()
    } else {
        outputs
            .first()
            .map(|(name, _)| name.clone())
            .ok_or_else(|| bad("a node without outputs needs `as NAME`"))?
    };
    graph.add_node(&name, op, args, outputs)?;
    Ok(())
}

fn bad(message: impl Into<String>) -> Error {
    Error::invalid_graph(message)
}

/// What is left of a line.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let ends = self
            .rest
            .strip_prefix(word)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.'));
        ends && self.take(word)
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(bad(format!("expected `{token}` at `{}`", self.rest))) }
    }

    fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(bad(format!("unexpected `{}`", self.rest))) }
    }

    fn word(&mut self) -> Result<&'a str> {
        let len = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(self.rest.len());
        if len == 0 {
            return Err(bad(format!("expected a name at `{}`", self.rest)));
        }
        let (word, rest) = self.rest.split_at(len);
        self.rest = rest.trim_start();
        Ok(word)
    }

    fn string(&mut self) -> Result<String> {
        self.expect("\"")?;
        let end = self.rest.find('"').ok_or_else(|| bad("a string does not end"))?;
        let text = self.rest[..end].to_string();
        self.rest = self.rest[end + 1..].trim_start();
        Ok(text)
    }

    fn value(&mut self, graph: &Graph) -> Result<ValueId> {
        self.expect("%")?;
        let name = self.word()?;
        graph.value_named(name).ok_or_else(|| bad(format!("`%{name}` is not defined")))
    }

    fn typed_name(&mut self) -> Result<(String, Type)> {
        self.expect("%")?;
        let name = self.word()?.to_string();
        self.expect(":")?;
        let ty = match self.word()? {
            "int" if self.take("(") => {
                let expr = self.sym_sum()?;
                self.expect(")")?;
                Type::Int(Some(expr))
            }
            "int" => Type::Int(None),
            "float" => Type::Float,
            "truth" => Type::Bool,
            "none" => Type::None,
            word => {
                let dtype = DType::parse(word).ok_or_else(|| bad(format!("`{word}` is no type")))?;
                self.expect("[")?;
                let mut sizes = Vec::new();
                while !self.take("]") {
                    sizes.push(self.sym_sum()?);
                    self.take(",");
                }
                Type::Tensor(TensorType { dtype, sizes })
            }
        };
        Ok((name, ty))
    }

    fn number(&mut self) -> Result<Arg> {
        let len = self.rest.find([',', ')', ']', ' ']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(len);
        self.rest = rest.trim_start();
        match text {
            "true" => Ok(Arg::Bool(true)),
            "false" => Ok(Arg::Bool(false)),
            _ => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(value), _) => Ok(Arg::Int(value)),
                (_, Ok(value)) => Ok(Arg::Float(value)),
                _ => Err(bad(format!("`{text}` is no number"))),
            },
        }
    }

    fn arg(&mut self, graph: &Graph) -> Result<Arg> {
        if self.rest.starts_with('%') {
            return Ok(Arg::Value(self.value(graph)?));
        }
        if self.rest.starts_with('"') {
            return Ok(Arg::Str(self.string()?));
        }
        if self.take("<") {
            let end = self.rest.find('>').ok_or_else(|| bad("`<` does not end"))?;
            let text = self.rest[..end].to_string();
            self.rest = self.rest[end + 1..].trim_start();
            return Ok(Arg::Opaque(text));
        }
        if self.take("[") {
            return self.list(graph);
        }
        if self.take_word("none") {
            return Ok(Arg::None);
        }
        let before = self.rest;
        if let Some(dtype) = self.word().ok().and_then(DType::parse) {
            return Ok(Arg::DType(dtype));
        }
        self.rest = before;
        self.number()
    }

    fn list(&mut self, graph: &Graph) -> Result<Arg> {
        let mut items = Vec::new();
        while !self.take("]") {
            items.push(self.arg(graph)?);
            self.take(",");
        }
        let is_tensor = |item: &Arg| match item {
            Arg::Value(value) => graph.value(*value).is_ok_and(|data| data.ty.as_tensor().is_some()),
            other => *other == Arg::None,
        };
        if !items.is_empty() && items.iter().all(is_tensor) {
            return Ok(Arg::Values(
                items
                    .iter()
                    .map(|item| if let Arg::Value(value) = item { Some(*value) } else { None })
                    .collect(),
            ));
        }
        if items.iter().any(|item| matches!(item, Arg::Bool(_))) {
            return items
                .iter()
                .map(|item| if let Arg::Bool(value) = item { Ok(*value) } else { Err(bad("a mixed list")) })
                .collect::<Result<_>>()
                .map(Arg::Bools);
        }
        if items.iter().any(|item| matches!(item, Arg::Float(_))) {
            return items
                .iter()
                .map(|item| if let Arg::Float(value) = item { Ok(*value) } else { Err(bad("a mixed list")) })
                .collect::<Result<_>>()
                .map(Arg::Floats);
        }
        items
            .iter()
            .map(|item| match item {
                Arg::Int(value) => Ok(IntArg::Const(*value)),
                Arg::Value(value) => Ok(IntArg::Value(*value)),
                _ => Err(bad("a mixed list")),
            })
            .collect::<Result<_>>()
            .map(Arg::Ints)
    }

    fn sym_sum(&mut self) -> Result<SymExpr> {
        let mut terms = vec![self.sym_product()?];
        while self.take("+") {
            terms.push(self.sym_product()?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { SymExpr::Add(terms) })
    }

    fn sym_product(&mut self) -> Result<SymExpr> {
        let mut factors = vec![self.sym_atom()?];
        loop {
            if self.take("//") {
                let divisor = self.sym_atom()?;
                let dividend = if factors.len() == 1 {
                    factors.remove(0)
                } else {
                    SymExpr::Mul(std::mem::take(&mut factors))
                };
                factors = vec![SymExpr::FloorDiv(Box::new(dividend), Box::new(divisor))];
            } else if self.take("*") {
                factors.push(self.sym_atom()?);
            } else {
                return Ok(if factors.len() == 1 { factors.remove(0) } else { SymExpr::Mul(factors) });
            }
        }
    }

    fn sym_atom(&mut self) -> Result<SymExpr> {
        if self.take("(") {
            let inner = self.sym_sum()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let negative = self.take("-");
        let word = self.word()?;
        match word.parse::<i64>() {
            Ok(value) => Ok(SymExpr::Const(if negative { -value } else { value })),
            Err(_) if negative => Err(bad("a symbol has no sign here: write (-1)*s0")),
            Err(_) => Ok(SymExpr::symbol(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"graph model
input %p_w: float32[24, 16] = parameter "w"
input %cache: float32[4, 16] = buffer "cache"
input %x: float32[2*s0 + 1, 16]
input %n: int(s1)
%permute: float32[16, 24] = aten.permute.default(self=%p_w, dims=[1, 0])
%mm: float32[2*s0 + 1, 24] = aten.mm.default(self=%x, mat2=%permute)
%a: float32[s1, 24], %b: float32[1, 24] = aten.split_with_sizes.default(self=%mm, split_sizes=[%n, 1]) as split
%index: float32[4, 16] = aten.index_put.default(self=%cache, indices=[none, %x], values=%x, accumulate=false)
%full: float32[2] = aten.full.default(size=[2], fill_value=-inf, dtype=float32, layout=<strided>)
output %a
output 3
output none
output %index -> %cache
"#;

    #[test]
    fn print_and_parse_are_inverse() {
        let graph = parse_graph(TEXT).unwrap();
        assert_eq!(graph.to_string(), TEXT);
    }

    #[test]
    fn errors_name_the_line() {
        let error = parse_graph("graph g\noutput %nowhere").unwrap_err();
        assert!(error.to_string().contains("line 2") && error.to_string().contains("nowhere"), "{error}");
    }
}
