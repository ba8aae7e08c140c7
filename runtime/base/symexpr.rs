//! Symbolic sizes: integer expressions over the symbols of a program, such as `2*s0 + 1`.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{Error, Result};

/// The inclusive range that a program allows for one symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Smallest value.
    pub min: i64,
    /// Largest value; `None` when the program gives no bound.
    pub max: Option<i64>,
}

impl Range {
    /// Whether `value` is within the range.
    pub fn contains(&self, value: i64) -> bool {
        value >= self.min && self.max.is_none_or(|max| value <= max)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            Some(max) => write!(f, "{} to {max}", self.min),
            None => write!(f, "at least {}", self.min),
        }
    }
}

/// The values of symbols for one run.
pub type SymEnv = BTreeMap<Arc<str>, i64>;

/// An integer expression over symbols. Division rounds down, as Python's `//` does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SymExpr {
    /// A number.
    Const(i64),
    /// A symbol of the program, by its name.
    Symbol(Arc<str>),
    /// The sum of all terms.
    Add(Vec<SymExpr>),
    /// The product of all factors.
    Mul(Vec<SymExpr>),
    /// Quotient rounded down.
    FloorDiv(Box<SymExpr>, Box<SymExpr>),
    /// Remainder with the sign of the divisor.
    Mod(Box<SymExpr>, Box<SymExpr>),
    /// The largest.
    Max(Vec<SymExpr>),
    /// The smallest.
    Min(Vec<SymExpr>),
    /// Base to a small non-negative power.
    Pow(Box<SymExpr>, u32),
}

impl SymExpr {
    /// The symbol called `name`.
    pub fn symbol(name: &str) -> SymExpr {
        SymExpr::Symbol(Arc::from(name))
    }

    /// The value when the expression has no symbol.
    pub fn as_const(&self) -> Option<i64> {
        match self {
            SymExpr::Const(value) => Some(*value),
            _ => self.eval(&SymEnv::new()).ok(),
        }
    }

    /// The value with the symbols of `env`.
    ///
    /// # Errors
    /// A symbol without a value, a division by zero, or a result beyond 64 bits.
    pub fn eval(&self, env: &SymEnv) -> Result<i64> {
        let overflow = || Error::invalid_input(format!("the size `{self}` overflows 64 bits"));
        match self {
            SymExpr::Const(value) => Ok(*value),
            SymExpr::Symbol(name) => env.get(name).copied().ok_or_else(|| {
                Error::invalid_input(format!("no input gives the value of the symbol `{name}`"))
            }),
            SymExpr::Add(terms) => {
                terms.iter().try_fold(0i64, |sum, term| sum.checked_add(term.eval(env)?).ok_or_else(overflow))
            }
            SymExpr::Mul(factors) => factors.iter().try_fold(1i64, |product, factor| {
                product.checked_mul(factor.eval(env)?).ok_or_else(overflow)
            }),
            SymExpr::FloorDiv(a, b) => self.divide(env, a, b).map(|(quotient, _)| quotient),
            SymExpr::Mod(a, b) => self.divide(env, a, b).map(|(_, remainder)| remainder),
            SymExpr::Max(items) => self.fold_items(env, items, i64::max),
            SymExpr::Min(items) => self.fold_items(env, items, i64::min),
            SymExpr::Pow(base, exponent) => base.eval(env)?.checked_pow(*exponent).ok_or_else(overflow),
        }
    }

    fn divide(&self, env: &SymEnv, a: &SymExpr, b: &SymExpr) -> Result<(i64, i64)> {
        let (a, b) = (a.eval(env)?, b.eval(env)?);
        let wrong = || Error::invalid_input(format!("the size `{self}` divides {a} by {b}"));
        let quotient = a.checked_div(b).ok_or_else(wrong)?;
        let remainder = a.checked_rem(b).ok_or_else(wrong)?;
        // Rust rounds towards zero, Python down.
        if remainder != 0 && (remainder < 0) != (b < 0) {
            Ok((quotient - 1, remainder + b))
        } else {
            Ok((quotient, remainder))
        }
    }

    fn fold_items(&self, env: &SymEnv, items: &[SymExpr], pick: fn(i64, i64) -> i64) -> Result<i64> {
        let (first, rest) = items
            .split_first()
            .ok_or_else(|| Error::invalid_input(format!("the size `{self}` has no operand")))?;
        rest.iter().try_fold(first.eval(env)?, |best, item| Ok(pick(best, item.eval(env)?)))
    }

    /// Calls `visit` with the name of every symbol, left to right, repeats included.
    pub fn for_each_symbol(&self, visit: &mut impl FnMut(&Arc<str>)) {
        match self {
            SymExpr::Const(_) => {}
            SymExpr::Symbol(name) => visit(name),
            SymExpr::Add(items) | SymExpr::Mul(items) | SymExpr::Max(items) | SymExpr::Min(items) => {
                items.iter().for_each(|item| item.for_each_symbol(visit));
            }
            SymExpr::FloorDiv(a, b) | SymExpr::Mod(a, b) => {
                a.for_each_symbol(visit);
                b.for_each_symbol(visit);
            }
            SymExpr::Pow(base, _) => base.for_each_symbol(visit),
        }
    }

    /// Solves `self == value` for the one symbol of `self` that `env` does not know, where that is exact.
    ///
    /// Returns the symbol and its value, or `None` when every symbol is known, when more than one is
    /// unknown, or when the expression is no sum or product that can be undone exactly.
    pub fn solve(&self, value: i64, env: &SymEnv) -> Option<(Arc<str>, i64)> {
        let split = |items: &[SymExpr], identity: i64, join: fn(i64, i64) -> Option<i64>| {
            let mut known = identity;
            let mut unknown = None;
            for item in items {
                match item.eval(env) {
                    Ok(item_value) => known = join(known, item_value)?,
                    Err(_) if unknown.is_none() => unknown = Some(item.clone()),
                    Err(_) => return None,
                }
            }
            Some((known, unknown?))
        };
        match self {
            SymExpr::Symbol(name) if !env.contains_key(name) => Some((name.clone(), value)),
            SymExpr::Add(terms) => {
                let (known, unknown) = split(terms, 0, i64::checked_add)?;
                unknown.solve(value.checked_sub(known)?, env)
            }
            SymExpr::Mul(factors) => {
                let (known, unknown) = split(factors, 1, i64::checked_mul)?;
                if known == 0 || value % known != 0 { None } else { unknown.solve(value / known, env) }
            }
            _ => None,
        }
    }
}

impl fmt::Display for SymExpr {
    /// The text form: `2*s0 + 1`, `(s0 + 1)//2`, `Mod(s0, 2)`, `Max(1, s0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list(f: &mut fmt::Formatter<'_>, items: &[SymExpr], separator: &str, group: bool) -> fmt::Result {
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    f.write_str(separator)?;
                }
                if group { atom(f, item)? } else { write!(f, "{item}")? }
            }
            Ok(())
        }
        fn atom(f: &mut fmt::Formatter<'_>, item: &SymExpr) -> fmt::Result {
            match item {
                SymExpr::Add(_) | SymExpr::Mul(_) | SymExpr::FloorDiv(..) => write!(f, "({item})"),
                SymExpr::Const(value) if *value < 0 => write!(f, "({value})"),
                _ => write!(f, "{item}"),
            }
        }
        match self {
            SymExpr::Const(value) => write!(f, "{value}"),
            SymExpr::Symbol(name) => f.write_str(name),
            SymExpr::Add(terms) => list(f, terms, " + ", false),
            SymExpr::Mul(factors) => list(f, factors, "*", true),
            SymExpr::FloorDiv(a, b) => {
                atom(f, a)?;
                f.write_str("//")?;
                atom(f, b)
            }
            SymExpr::Mod(a, b) => write!(f, "Mod({a}, {b})"),
            SymExpr::Max(items) => {
                f.write_str("Max(")?;
                list(f, items, ", ", false)?;
                f.write_str(")")
            }
            SymExpr::Min(items) => {
                f.write_str("Min(")?;
                list(f, items, ", ", false)?;
                f.write_str(")")
            }
            SymExpr::Pow(base, exponent) => {
                atom(f, base)?;
                write!(f, "**{exponent}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, i64)]) -> SymEnv {
        pairs.iter().map(|(name, value)| (Arc::from(*name), *value)).collect()
    }

    #[test]
    fn division_rounds_down() {
        let div = |a, b| SymExpr::FloorDiv(Box::new(SymExpr::Const(a)), Box::new(SymExpr::Const(b)));
        assert_eq!(div(-7, 2).as_const(), Some(-4));
        assert_eq!(div(7, 2).as_const(), Some(3));
        assert!(div(7, 0).eval(&SymEnv::new()).is_err());
        assert!(div(i64::MIN, -1).eval(&SymEnv::new()).is_err());
    }

    #[test]
    fn a_symbol_seen_only_in_an_expression_is_solved_exactly() {
        let twice = SymExpr::Mul(vec![SymExpr::Const(2), SymExpr::symbol("s0")]);
        assert_eq!(twice.solve(8, &SymEnv::new()), Some((Arc::from("s0"), 4)));
        assert_eq!(twice.solve(7, &SymEnv::new()), None);
        let sum = SymExpr::Add(vec![twice, SymExpr::symbol("s1")]);
        assert_eq!(sum.solve(9, &env(&[("s1", 1)])), Some((Arc::from("s0"), 4)));
        assert_eq!(sum.solve(9, &SymEnv::new()), None);
    }

    #[test]
    fn overflow_is_an_error() {
        let big = SymExpr::Mul(vec![SymExpr::Const(i64::MAX), SymExpr::symbol("s0")]);
        assert!(big.eval(&env(&[("s0", 2)])).is_err());
        assert_eq!(big.to_string(), "9223372036854775807*s0");
    }
}
