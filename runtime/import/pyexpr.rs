//! Parser for the expressions that sympy prints, both `srepr` and plain text.
//!
//! Syntax only: `2*s0 + 1` and `Add(Mul(Integer(2), Symbol('s0')), Integer(1))` become calls of
//! named functions on literals and symbols. What the names mean is `symexpr`'s matter.

/// Longest text, deepest nesting, most operators that nest (all but sums and products). They bound
/// the depth of the tree; sizes of a real program stay far below.
const MAX_TEXT_BYTES: usize = 1 << 16;
const MAX_DEPTH: usize = 64;
const MAX_OPERATORS: usize = 64;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// Integer literal.
    Int(i64),
    /// Float literal.
    Float(f64),
    /// String literal, as in `Symbol('s0')`.
    Text(String),
    /// A name standing alone.
    Name(String),
    /// `name(args)`, or an operator under sympy's name for it. Keyword arguments are left out.
    Call(String, Vec<Expr>),
}

/// Parses `text`, or says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Expr, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("the expression has {} bytes, the limit is {MAX_TEXT_BYTES}", text.len()));
    }
    let mut parser = Parser { rest: text, depth: 0, operators: 0 };
    let expr = parser.binary(0)?;
    parser.skip_spaces();
    if parser.rest.is_empty() { Ok(expr) } else { Err(parser.unexpected()) }
}

/// Infix operators with sympy's names, by binding strength; longer tokens before their prefixes.
const OPERATORS: [(&str, &str, u8); 15] = [
    ("**", "Pow", 7),
    ("//", "FloorDiv", 6),
    ("==", "Eq", 3),
    ("!=", "Ne", 3),
    ("<=", "Le", 3),
    (">=", "Ge", 3),
    ("<", "Lt", 3),
    (">", "Gt", 3),
    ("|", "Or", 1),
    ("&", "And", 2),
    ("+", "Add", 5),
    ("-", "Sub", 5),
    ("*", "Mul", 6),
    ("/", "Div", 6),
    ("%", "PythonMod", 6),
];
const POWER: u8 = 7;
const UNARY: u8 = 6;

/// `left NAME right`; a chain of sums or products becomes one call, so that it does not nest.
fn chain(left: Expr, name: &str, right: Expr) -> Expr {
    match left {
        Expr::Call(inner, mut args) if inner == name && matches!(name, "Add" | "Mul") => {
            args.push(right);
            Expr::Call(inner, args)
        }
        left => Expr::Call(name.to_owned(), vec![left, right]),
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    operators: usize,
}

impl<'a> Parser<'a> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn unexpected(&self) -> String {
        let shown: String = self.rest.chars().take(20).collect();
        if shown.is_empty() { "it ends too early".to_owned() } else { format!("unexpected {shown:?}") }
    }

    /// Takes the characters for which `keep` holds.
    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it nests deeper than {MAX_DEPTH}"));
        }
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// An operand followed by operators that bind at least as strongly as `weakest`.
    fn binary(&mut self, weakest: u8) -> Result<Expr, String> {
        let mut left = self.nested(Self::unary)?;
        loop {
            self.skip_spaces();
            let found = OPERATORS.iter().find(|(token, ..)| self.rest.starts_with(token));
            let Some(&(token, name, strength)) = found.filter(|(.., strength)| *strength >= weakest) else {
                return Ok(left);
            };
            self.rest = self.rest.get(token.len()..).unwrap_or_default();
            // A power binds to the right, everything else to the left.
            let next = if strength == POWER { strength } else { strength + 1 };
            let right = self.nested(|p| p.binary(next))?;
            left = match name {
                "Sub" => chain(left, "Add", Expr::Call("Mul".to_owned(), vec![Expr::Int(-1), right])),
                _ => chain(left, name, right),
            };
            self.operators += usize::from(!matches!(name, "Add" | "Sub" | "Mul"));
            if self.operators > MAX_OPERATORS {
                return Err(format!("it has more than {MAX_OPERATORS} operators"));
            }
        }
    }

    fn unary(&mut self) -> Result<Expr, String> {
        if self.eat("-") {
            // `-2` is a literal, `-s0` a product, and `-s0**2` negates the power.
            return Ok(match self.nested(|p| p.binary(UNARY + 1))? {
                Expr::Int(value) => Expr::Int(value.checked_neg().ok_or("an integer is too large")?),
                Expr::Float(value) => Expr::Float(-value),
                operand => Expr::Call("Mul".to_owned(), vec![Expr::Int(-1), operand]),
            });
        }
        if self.eat("~") {
            return Ok(Expr::Call("Not".to_owned(), vec![self.nested(Self::unary)?]));
        }
        self.operand()
    }

    fn operand(&mut self) -> Result<Expr, String> {
        self.skip_spaces();
        match self.rest.chars().next() {
            Some('(') => {
                self.eat("(");
                let inner = self.nested(|p| p.binary(0))?;
                if self.eat(")") { Ok(inner) } else { Err(self.unexpected()) }
            }
            Some('\'' | '"') => self.text(),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
                if self.eat("(") {
                    Ok(Expr::Call(name.to_owned(), self.arguments()?))
                } else {
                    Ok(Expr::Name(name.to_owned()))
                }
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Arguments up to the closing parenthesis; keyword arguments (assumptions) are checked and dropped.
    fn arguments(&mut self) -> Result<Vec<Expr>, String> {
        let mut arguments = Vec::new();
        while !self.eat(")") {
            let argument = self.nested(|p| p.binary(0))?;
            if self.eat("=") {
                self.nested(|p| p.binary(0))?;
            } else {
                arguments.push(argument);
            }
            if !self.eat(",") && !self.rest.starts_with(')') {
                return Err(self.unexpected());
            }
        }
        Ok(arguments)
    }

    fn text(&mut self) -> Result<Expr, String> {
        let quote = self.rest.chars().next().unwrap_or('\'');
        let inner = self.rest.get(1..).unwrap_or_default();
        let end = inner.find(quote).ok_or("a string does not end")?;
        let (text, rest) = inner.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(Expr::Text(text.to_owned()))
    }

    fn number(&mut self) -> Result<Expr, String> {
        let mut after_exponent = false;
        let digits = self.rest.find(|c: char| {
            let part = c.is_ascii_digit()
                || c == '.'
                || c == 'e'
                || c == 'E'
                || (after_exponent && matches!(c, '+' | '-'));
            after_exponent = matches!(c, 'e' | 'E');
            !part
        });
        let (text, rest) = self.rest.split_at(digits.unwrap_or(self.rest.len()));
        self.rest = rest;
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(Expr::Int).map_err(|_| format!("the integer {text} is too large"));
        }
        text.parse().map(Expr::Float).map_err(|_| format!("{text:?} is not a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, args: impl Into<Vec<Expr>>) -> Expr {
        Expr::Call(name.to_owned(), args.into())
    }

    fn name(name: &str) -> Expr {
        Expr::Name(name.to_owned())
    }

    #[test]
    fn both_forms_parse() {
        let srepr =
            parse("Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(-1))").unwrap();
        let symbol = call("Symbol", [Expr::Text("s0".to_owned())]);
        let two = call("Integer", [Expr::Int(2)]);
        assert_eq!(srepr, call("Add", [call("Mul", [two, symbol]), call("Integer", [Expr::Int(-1)])]));
        let plain = parse("2*s0 + 1").unwrap();
        assert_eq!(plain, call("Add", [call("Mul", [Expr::Int(2), name("s0")]), Expr::Int(1)]));
    }

    #[test]
    fn operators_bind_as_in_python() {
        for (short, long) in [
            ("a + b*c**d", "a + (b*(c**d))"),
            ("a - b - c", "(a - b) - c"),
            ("a - b", "a + -1*b"),
            ("a**b**c", "a**(b**c)"),
            ("-a**2", "-(a**2)"),
            ("a // b * c % d", "((a // b)*c) % d"),
            ("a + 1 <= b*2", "(a + 1) <= (b*2)"),
            ("2**-1", "2**(-1)"),
        ] {
            assert_eq!(parse(short).unwrap(), parse(long).unwrap(), "{short}");
        }
    }

    #[test]
    fn numbers_parse() {
        assert_eq!(parse("9223372036854775807").unwrap(), Expr::Int(i64::MAX));
        assert!(parse("9223372036854775808").is_err());
        assert_eq!(parse("-1.5e-3").unwrap(), Expr::Float(-1.5e-3));
        assert_eq!(
            parse("Float('0.5', precision=53)").unwrap(),
            call("Float", [Expr::Text("0.5".to_owned())])
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "1 +", "f(", "f(1", "f(1 2)", "(1", "1)", "'s0", "a b", "@", "1..2", "f(,)", "é", "**2"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for deep in ["(".repeat(60_000), "-".repeat(60_000), "~".repeat(60_000), "f(".repeat(30_000)] {
            assert!(parse(&deep).is_err());
        }
        assert!(parse(&format!("1{}", "**1".repeat(20_000))).is_err());
        assert!(parse(&"1".repeat(100_000)).is_err());
        assert!(parse(&format!("1{}", "%1".repeat(20_000))).is_err());
        assert!(parse(&format!("1{}", "+1".repeat(30_000))).is_ok());
    }
}
