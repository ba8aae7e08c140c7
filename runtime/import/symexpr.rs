//! What sympy's names mean as integer sizes: from `pyexpr`'s trees to the IR's symbolic sizes.
//!
//! Fractions (`Rational(1, 2)*s0 + 1/2`, `IntTrueDiv`) are carried exactly as a numerator over a
//! constant denominator, and divided only where the expression rounds or ends.

use std::collections::HashMap;

use super::pyexpr::{self, Expr};
use crate::base::SymExpr;

/// Most nodes that rounding towards zero may copy; see [`Lowering::twice`].
const MAX_COPIED_NODES: usize = 4096;

/// Why a text is no symbolic size.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// It is no expression.
    Syntax(String),
    /// It is an expression that the IR does not have.
    Unsupported(String),
}

/// Parser that remembers, as a program repeats few texts many times.
#[derive(Default)]
pub(super) struct SizeParser {
    known: HashMap<String, SymExpr>,
}

impl SizeParser {
    /// The size that `text` stands for.
    pub(super) fn parse(&mut self, text: &str) -> Result<SymExpr, Fault> {
        if let Some(size) = self.known.get(text) {
            return Ok(size.clone());
        }
        let size = parse(text)?;
        self.known.insert(text.to_owned(), size.clone());
        Ok(size)
    }
}

fn parse(text: &str) -> Result<SymExpr, Fault> {
    let expr = pyexpr::parse(text).map_err(Fault::Syntax)?;
    let mut lowering = Lowering { copied_nodes: 0 };
    let fraction = lowering.lower(&expr).map_err(Fault::Unsupported)?;
    let size = fraction.floor();
    Ok(size.as_const().map_or(size, SymExpr::Const))
}

/// `numerator / denominator`; the denominator is positive.
#[derive(Clone)]
struct Fraction {
    numerator: SymExpr,
    denominator: i64,
}

type Lowered<T = Fraction> = Result<T, String>;

fn whole(numerator: SymExpr) -> Fraction {
    Fraction { numerator, denominator: 1 }
}

fn times(factor: i64, expr: SymExpr) -> SymExpr {
    match (factor, expr) {
        (1, expr) => expr,
        (factor, SymExpr::Const(value)) if factor.checked_mul(value).is_some() => {
            SymExpr::Const(factor.saturating_mul(value))
        }
        (factor, expr) => SymExpr::Mul(vec![SymExpr::Const(factor), expr]),
    }
}

fn floor_div(numerator: SymExpr, denominator: SymExpr) -> SymExpr {
    match denominator {
        SymExpr::Const(1) => numerator,
        denominator => SymExpr::FloorDiv(Box::new(numerator), Box::new(denominator)),
    }
}

/// -floor(-n/d), which rounds up.
fn ceil_div(numerator: SymExpr, denominator: SymExpr) -> SymExpr {
    match denominator {
        SymExpr::Const(1) => numerator,
        denominator => times(-1, floor_div(times(-1, numerator), denominator)),
    }
}

impl Fraction {
    fn floor(self) -> SymExpr {
        floor_div(self.numerator, SymExpr::Const(self.denominator))
    }

    fn whole(self) -> Lowered<SymExpr> {
        if self.denominator == 1 {
            Ok(self.numerator)
        } else {
            Err("a fraction where a whole number belongs".to_owned())
        }
    }
}

struct Lowering {
    copied_nodes: usize,
}

impl Lowering {
    fn lower(&mut self, expr: &Expr) -> Lowered {
        match expr {
            Expr::Int(value) => Ok(whole(SymExpr::Const(*value))),
            Expr::Float(value) => whole_float(*value),
            Expr::Name(name) => symbol(name),
            Expr::Text(text) => Err(format!("the string {text:?}")),
            Expr::Call(name, args) => self.call(name, args),
        }
    }

    fn call(&mut self, name: &str, args: &[Expr]) -> Lowered {
        match (name, args) {
            ("Symbol" | "Dummy", [Expr::Text(name)]) => symbol(name),
            ("Integer", [Expr::Int(value)]) => Ok(whole(SymExpr::Const(*value))),
            ("Float", [Expr::Text(text)]) => {
                whole_float(text.parse().map_err(|_| format!("the float {text:?}"))?)
            }
            ("Float", [Expr::Float(value)]) => whole_float(*value),
            ("Rational", [Expr::Int(p), Expr::Int(q)]) => over(whole(SymExpr::Const(*p)), *q),
            ("Add", [_, ..]) => self.sum(args),
            ("Mul", [_, ..]) => self.product(args),
            ("Max", [_, ..]) => Ok(whole(SymExpr::Max(self.whole_all(args)?))),
            ("Min", [_, ..]) => Ok(whole(SymExpr::Min(self.whole_all(args)?))),
            ("Pow" | "PowByNatural", [base, exponent]) => self.power(base, exponent),
            ("Div" | "IntTrueDiv" | "FloatTrueDiv", [a, b]) => self.quotient(a, b),
            ("FloorDiv" | "CleanDiv", [a, b]) => self.divide(a, b, floor_div),
            ("CeilDiv", [a, b]) => self.divide(a, b, ceil_div),
            ("Mod" | "PythonMod", [a, b]) => self.modulo(a, b),
            ("ModularIndexing", [a, step, modulus]) => {
                let quotient = self.divide(a, step, floor_div)?;
                let modulus = self.lower(modulus)?.whole()?;
                Ok(whole(SymExpr::Mod(Box::new(quotient.numerator), Box::new(modulus))))
            }
            ("floor" | "FloorToInt", [a]) => Ok(whole(self.lower(a)?.floor())),
            ("ceiling" | "CeilToInt", [a]) => {
                let a = self.lower(a)?;
                Ok(whole(ceil_div(a.numerator, SymExpr::Const(a.denominator))))
            }
            ("TruncToInt", [a]) => self.truncate(a),
            ("Abs", [a]) => self.absolute(a),
            ("ToFloat" | "TruncToFloat" | "Identity", [a]) => self.lower(a),
            ("LShift", [a, Expr::Call(_, by)]) => self.shift(a, by, |a, power| times(power, a)),
            ("RShift", [a, Expr::Call(_, by)]) => {
                self.shift(a, by, |a, power| floor_div(a, SymExpr::Const(power)))
            }
            _ => Err(format!("`{name}` of {} operands", args.len())),
        }
    }

    fn whole_all(&mut self, args: &[Expr]) -> Lowered<Vec<SymExpr>> {
        args.iter().map(|arg| self.lower(arg)?.whole()).collect()
    }

    fn sum(&mut self, args: &[Expr]) -> Lowered {
        let terms = args.iter().map(|arg| self.lower(arg)).collect::<Lowered<Vec<_>>>()?;
        let mut common = 1i64;
        for term in &terms {
            if common % term.denominator != 0 {
                common = common.checked_mul(term.denominator).ok_or("a denominator beyond 64 bits")?;
            }
        }
        let scaled = terms.into_iter().map(|term| times(common / term.denominator, term.numerator)).collect();
        Ok(Fraction { numerator: SymExpr::Add(scaled), denominator: common })
    }

    /// A product; factors to a negative power divide it, which sympy writes only where that is exact.
    fn product(&mut self, args: &[Expr]) -> Lowered {
        let mut factors = Vec::with_capacity(args.len());
        let mut divisors = Vec::new();
        let mut denominator = 1i64;
        for arg in args {
            if let Some(divisor) = self.reciprocal(arg)? {
                divisors.push(divisor);
                continue;
            }
            let factor = self.lower(arg)?;
            factors.push(factor.numerator);
            denominator =
                denominator.checked_mul(factor.denominator).ok_or("a denominator beyond 64 bits")?;
        }
        let mut numerator = product_of(factors);
        if !divisors.is_empty() {
            numerator = floor_div(numerator, product_of(divisors));
        }
        Ok(Fraction { numerator, denominator })
    }

    /// `x**k` of `Pow(x, -k)` with a symbolic `x`.
    fn reciprocal(&mut self, arg: &Expr) -> Lowered<Option<SymExpr>> {
        let Expr::Call(name, args) = arg else { return Ok(None) };
        let [base, exponent] = args.as_slice() else { return Ok(None) };
        match (name.as_str(), self.constant(exponent)?) {
            ("Pow" | "PowByNatural", Some(exponent)) if exponent < 0 => {
                let base = self.lower(base)?.whole()?;
                Ok(Some(raise(base, exponent.checked_neg().ok_or("an exponent beyond 64 bits")?)?))
            }
            _ => Ok(None),
        }
    }

    fn constant(&mut self, expr: &Expr) -> Lowered<Option<i64>> {
        match expr {
            Expr::Int(value) => Ok(Some(*value)),
            Expr::Call(name, args) => match (name.as_str(), args.as_slice()) {
                ("Integer", [Expr::Int(value)]) => Ok(Some(*value)),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn power(&mut self, base: &Expr, exponent: &Expr) -> Lowered {
        let exponent = self.constant(exponent)?.ok_or("a power with a symbolic exponent")?;
        let base = self.lower(base)?.whole()?;
        if exponent >= 0 {
            return Ok(whole(raise(base, exponent)?));
        }
        let divisor = raise(base, exponent.checked_neg().ok_or("an exponent beyond 64 bits")?)?;
        match divisor.as_const() {
            Some(divisor) => over(whole(SymExpr::Const(1)), divisor),
            None => Err("a symbolic denominator outside a product".to_owned()),
        }
    }

    /// An exact quotient by a constant stays a fraction; one by an expression is rounded down.
    fn quotient(&mut self, a: &Expr, b: &Expr) -> Lowered {
        let divisor = self.lower(b)?.whole()?;
        match divisor.as_const() {
            Some(divisor) => over(self.lower(a)?, divisor),
            None => Ok(whole(floor_div(self.lower(a)?.whole()?, divisor))),
        }
    }

    fn divide(&mut self, a: &Expr, b: &Expr, round: fn(SymExpr, SymExpr) -> SymExpr) -> Lowered {
        let (a, b) = (self.lower(a)?, self.lower(b)?.whole()?);
        Ok(whole(round(a.numerator, times(a.denominator, b))))
    }

    fn modulo(&mut self, a: &Expr, b: &Expr) -> Lowered {
        let (a, b) = (self.lower(a)?.whole()?, self.lower(b)?.whole()?);
        Ok(whole(SymExpr::Mod(Box::new(a), Box::new(b))))
    }

    fn shift(&mut self, a: &Expr, by: &[Expr], apply: fn(SymExpr, i64) -> SymExpr) -> Lowered {
        match by {
            [Expr::Int(by @ 0..=62)] => Ok(whole(apply(self.lower(a)?.whole()?, 1i64 << by))),
            _ => Err("a shift by what is no constant".to_owned()),
        }
    }

    /// Rounds towards zero: `Max(0, floor(x)) + Min(0, ceil(x))`.
    fn truncate(&mut self, a: &Expr) -> Lowered {
        let Fraction { numerator, denominator } = self.lower(a)?;
        if denominator == 1 {
            return Ok(whole(numerator));
        }
        let (numerator, copy) = self.twice(numerator)?;
        let denominator = SymExpr::Const(denominator);
        let down = SymExpr::Max(vec![SymExpr::Const(0), floor_div(numerator, denominator.clone())]);
        let up = SymExpr::Min(vec![SymExpr::Const(0), ceil_div(copy, denominator)]);
        Ok(whole(SymExpr::Add(vec![down, up])))
    }

    fn absolute(&mut self, a: &Expr) -> Lowered {
        let Fraction { numerator, denominator } = self.lower(a)?;
        let (numerator, copy) = self.twice(numerator)?;
        Ok(Fraction { numerator: SymExpr::Max(vec![numerator, times(-1, copy)]), denominator })
    }

    /// An expression and its copy. Copies within copies would grow without bound, so they are counted.
    fn twice(&mut self, expr: SymExpr) -> Lowered<(SymExpr, SymExpr)> {
        self.copied_nodes += count_nodes(&expr);
        if self.copied_nodes > MAX_COPIED_NODES {
            return Err("too much rounding within rounding".to_owned());
        }
        Ok((expr.clone(), expr))
    }
}

fn symbol(name: &str) -> Lowered {
    let plain = name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !plain
        || !starts
        || matches!(name, "oo" | "int_oo" | "nan" | "zoo" | "True" | "False" | "true" | "false")
    {
        return Err(format!("the symbol {name:.64?}"));
    }
    Ok(whole(SymExpr::symbol(name)))
}

fn whole_float(value: f64) -> Lowered {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Ok(whole(SymExpr::Const(value as i64)));
    }
    Err(format!("the float {value}"))
}

fn over(fraction: Fraction, divisor: i64) -> Lowered {
    let too_large = "a denominator beyond 64 bits";
    let denominator = fraction.denominator.checked_mul(divisor).ok_or(too_large)?;
    match denominator {
        0 => Err("a division by zero".to_owned()),
        1.. => Ok(Fraction { numerator: fraction.numerator, denominator }),
        _ => Ok(Fraction {
            numerator: times(-1, fraction.numerator),
            denominator: denominator.checked_neg().ok_or(too_large)?,
        }),
    }
}

fn product_of(mut factors: Vec<SymExpr>) -> SymExpr {
    if factors.len() == 1 { factors.swap_remove(0) } else { SymExpr::Mul(factors) }
}

fn raise(base: SymExpr, exponent: i64) -> Lowered<SymExpr> {
    match exponent {
        1 => Ok(base),
        _ => match u32::try_from(exponent) {
            Ok(exponent) => Ok(SymExpr::Pow(Box::new(base), exponent)),
            Err(_) => Err(format!("the exponent {exponent}")),
        },
    }
}

fn count_nodes(expr: &SymExpr) -> usize {
    1 + match expr {
        SymExpr::Const(_) | SymExpr::Symbol(_) => 0,
        SymExpr::Add(items) | SymExpr::Mul(items) | SymExpr::Max(items) | SymExpr::Min(items) => {
            items.iter().map(count_nodes).sum()
        }
        SymExpr::FloorDiv(a, b) | SymExpr::Mod(a, b) => count_nodes(a) + count_nodes(b),
        SymExpr::Pow(base, _) => count_nodes(base),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::SymEnv;

    fn value(text: &str, s0: i64, s1: i64) -> i64 {
        let env: SymEnv = [(Arc::from("s0"), s0), (Arc::from("s1"), s1)].into();
        parse(text).unwrap().eval(&env).unwrap()
    }

    #[test]
    fn both_forms_give_the_same_size() {
        for (srepr, plain) in [
            ("Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(1))", "2*s0 + 1"),
            ("Pow(Symbol('s0', integer=True), Integer(2))", "s0**2"),
            ("FloorDiv(Symbol('s0', integer=True), Integer(2))", "s0//2"),
            ("Max(Integer(1), Symbol('s0', integer=True))", "Max(1, s0)"),
            ("PythonMod(Symbol('s0'), Integer(3))", "s0 % 3"),
        ] {
            assert_eq!(parse(srepr), parse(plain), "{plain}");
        }
    }

    #[test]
    fn values_are_those_of_python() {
        for (text, s0, s1, expected) in [
            ("2*s0 - 1", 4, 0, 7),
            ("-s0 + s1", 4, 9, 5),
            ("s0*s1*Pow(s0, -1)", 4, 9, 9),
            ("Mul(Rational(1, 2), s0) + Rational(1, 2)", 7, 0, 4),
            ("(s0 + 1)/2", 7, 0, 4),
            ("s0/2 + s1/2", 3, 5, 4),
            ("s0/2 + s1/3", 2, 6, 3),
            ("floor(s0/2)", 7, 0, 3),
            ("ceiling(s0/2)", 7, 0, 4),
            ("CeilDiv(s0, 2)", 7, 0, 4),
            ("CeilToInt(IntTrueDiv(s0, 4))", 9, 0, 3),
            ("TruncToInt(IntTrueDiv(s0, 2))", -7, 0, -3),
            ("TruncToInt(IntTrueDiv(s0, 2))", 7, 0, 3),
            ("Abs(s0)", -7, 0, 7),
            ("FloorDiv(s0, s1)", 17, 5, 3),
            ("CleanDiv(6*s0, s1)", 5, 10, 3),
            ("Mod(s0, s1)", 17, 5, 2),
            ("ModularIndexing(s0, 2, 3)", 11, 0, 2),
            ("Min(s0, s1, 3)", 7, 5, 3),
            ("ToFloat(s0)*Float('2.0', precision=53)", 3, 0, 6),
            ("LShift(s0, Integer(3))", 3, 0, 24),
            ("RShift(s0, Integer(1))", 7, 0, 3),
            ("s0/(-2)", 8, 0, -4),
            ("Integer(12)", 0, 0, 12),
        ] {
            assert_eq!(value(text, s0, s1), expected, "{text}");
        }
    }

    #[test]
    fn constants_fold() {
        assert_eq!(parse("2*3 + 1"), Ok(SymExpr::Const(7)));
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for text in [
            "oo",
            "Symbol('a b')",
            "'s0'",
            "1.5",
            "s0/0",
            "2**s0",
            "Where(s0, 1, 2)",
            "Add()",
            "f(s0)",
            "s0 < 3",
        ] {
            assert!(matches!(parse(text), Err(Fault::Unsupported(_))), "{text}");
        }
        assert!(matches!(parse("2*"), Err(Fault::Syntax(_))));
        let nested = (0..20).fold("s0".to_owned(), |inner, _| format!("Abs({inner})"));
        assert!(matches!(parse(&nested), Err(Fault::Unsupported(_))));
        assert!(parse("9223372036854775807*9223372036854775807*s0").is_ok());
    }
}
