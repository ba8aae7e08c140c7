//! JSON as Python writes it: the bare words `Infinity`, `-Infinity` and `NaN` of older files, limits
//! on size, and maps in which a key stands once.
//!
//! Nesting needs no care here: no type of `schema` is recursive, and what the schema ignores is
//! skipped by a parser that does not recurse.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};

use super::damaged;
use crate::base::Result;

/// Largest JSON entry, in bytes. A program of 10,000 nodes takes about 10 MB.
pub(super) const MAX_JSON_BYTES: usize = 256 << 20;

/// Parses the JSON entry `place`.
pub(super) fn parse<T: DeserializeOwned>(place: &str, text: &[u8]) -> Result<T> {
    if text.len() > MAX_JSON_BYTES {
        let reason = format!("{} bytes of JSON, the limit is {MAX_JSON_BYTES}", text.len());
        return Err(damaged(place, reason));
    }
    serde_json::from_slice(&quote_bare_words(text)).map_err(|e| damaged(place, e.to_string()))
}

/// Puts quotes around the bare words for non-finite floats, which JSON does not have.
fn quote_bare_words(text: &[u8]) -> Cow<'_, [u8]> {
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut out: Vec<u8> = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    let mut in_string = false;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'-' | b'I' | b'N' if !in_string => {
                let rest = text.get(at..).unwrap_or_default();
                if let Some(word) = WORDS.iter().find(|word| rest.starts_with(word)) {
                    out.extend_from_slice(text.get(copied..at).unwrap_or_default());
                    out.push(b'"');
                    out.extend_from_slice(word);
                    out.push(b'"');
                    copied = at + word.len();
                    at = copied;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// A float as torch writes it: a number, or one of the strings `Infinity`, `-Infinity`, `NaN`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Float(pub f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FloatVisitor;
        impl Visitor<'_> for FloatVisitor {
            type Value = Float;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, \"Infinity\", \"-Infinity\" or \"NaN\"")
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Float, E> {
                Ok(Float(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Float, E> {
                match value {
                    "Infinity" => Ok(Float(f64::INFINITY)),
                    "-Infinity" => Ok(Float(f64::NEG_INFINITY)),
                    "NaN" => Ok(Float(f64::NAN)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(FloatVisitor)
    }
}

/// A map that refuses a repeated key, which would make the file mean different things to different readers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UniqueMap<V>(pub BTreeMap<String, V>);

impl<V> Default for UniqueMap<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for MapVisitor<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = access.next_entry::<String, V>()? {
                    if map.contains_key(&key) {
                        return Err(de::Error::custom(format_args!("the key {key:?} stands twice")));
                    }
                    map.insert(key, value);
                }
                Ok(UniqueMap(map))
            }
        }
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_are_quoted_outside_strings_only() {
        let quoted = |text: &str| String::from_utf8(quote_bare_words(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(quoted("[Infinity, -Infinity,NaN]"), "[\"Infinity\", \"-Infinity\",\"NaN\"]");
        assert_eq!(quoted(r#"{"a\"NaN": "NaN \\", "b": NaN}"#), r#"{"a\"NaN": "NaN \\", "b": "NaN"}"#);
        assert_eq!(quoted("[-1, I, N, \"Infinity"), "[-1, I, N, \"Infinity");
        assert!(matches!(quote_bare_words(b"{\"x\": -1.5}"), Cow::Borrowed(_)));
    }

    #[test]
    fn floats_come_as_numbers_words_and_strings() {
        let floats: Vec<Float> =
            parse("t", br#"[1, -2.5, 1e-5, "Infinity", -Infinity, 0.1, 12345678901234567890]"#).unwrap();
        let expected = [1.0, -2.5, 1e-5, f64::INFINITY, f64::NEG_INFINITY, 0.1, 12345678901234567890.0];
        assert_eq!(floats, expected.map(Float));
        let nan: Vec<Float> = parse("t", br#"[NaN, "NaN"]"#).unwrap();
        assert!(nan.iter().all(|f| f.0.is_nan()));
    }

    #[test]
    fn other_words_are_no_floats() {
        for text in [r#""inf""#, r#""nan""#, r#""1.0""#, "true", "null", "1e400", "[]"] {
            assert!(parse::<Float>("t", text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_word_is_no_integer() {
        assert!(parse::<i64>("t", b"NaN").is_err());
    }

    #[test]
    fn a_repeated_key_is_refused() {
        let error = parse::<UniqueMap<i64>>("t", br#"{"a": 1, "a": 2}"#).unwrap_err();
        assert!(error.to_string().contains("\"a\" stands twice"), "{error}");
    }
}
