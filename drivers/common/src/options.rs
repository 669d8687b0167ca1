//! Options from a text: `KEY=VALUE,KEY=VALUE`.
//!
//! A bare word in front is the value of the driver's main option; any other bare word is a switch that is turned on. So
//! `eth0,mode=copy,busy-poll` is `interface=eth0,mode=copy,busy-poll=true`. Values have no commas: a configuration file
//! can say all values.

use std::fmt::{self, Display};
use std::vec;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// What is wrong with an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Which option, if it is about one.
    pub key: Option<String>,
    /// What is wrong with it, and what was expected.
    pub problem: String,
}

impl Display for OptionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(formatter, "option '{key}': {}", self.problem),
            None => formatter.write_str(&self.problem),
        }
    }
}

impl std::error::Error for OptionError {}

impl OptionError {
    fn new(problem: String) -> Self {
        Self { key: None, problem }
    }
}

impl de::Error for OptionError {
    fn custom<T: Display>(problem: T) -> Self {
        Self::new(problem.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(match expected {
            [] => format!("there is no option '{field}': this driver has none"),
            known => format!("there is no option '{field}': known are {}", known.join(", ")),
        })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("'{variant}' is unknown: expected {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("option '{field}' is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("option '{field}' is there twice: leave one out"))
    }
}

/// Reads options. `main` is the key that a bare word in front is the value of.
///
/// # Errors
/// [`OptionError`]: a key that is not known, missing or there twice, or a value of another kind than expected.
pub fn parse<T: DeserializeOwned>(text: &str, main: Option<&str>) -> Result<T, OptionError> {
    let mut pairs = Vec::new();
    for (index, word) in text.split(',').filter(|word| !word.is_empty()).enumerate() {
        pairs.push(match (word.split_once('='), main) {
            (Some(pair), _) => pair,
            (None, Some(main)) if index == 0 => (main, word),
            (None, _) => (word, "true"),
        });
    }
    T::deserialize(Pairs { rest: pairs.into_iter(), value: None })
}

struct Pairs<'a> {
    rest: vec::IntoIter<(&'a str, &'a str)>,
    /// The pair whose key was read.
    value: Option<(&'a str, &'a str)>,
}

impl<'de> Deserializer<'de> for Pairs<'_> {
    type Error = OptionError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = OptionError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, OptionError> {
        self.value = self.rest.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, OptionError> {
        let (key, text) = self.value.take().unwrap_or_default();
        seed.deserialize(Value(text))
            .map_err(|error| OptionError { key: Some(error.key.unwrap_or_else(|| key.to_owned())), ..error })
    }
}

/// A value; what it is depends on what is wanted.
#[derive(Clone, Copy)]
struct Value<'a>(&'a str);

impl Value<'_> {
    fn unexpected(self, expected: &str) -> OptionError {
        OptionError::new(format!("'{}' is not {expected}", self.0))
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $type:ty,)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
            let expected = format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX);
            let number: $type = self.0.parse().map_err(|_| self.unexpected(&expected))?;
            visitor.$visit(number)
        })+
    };
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = OptionError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_bool(self.0.parse().map_err(|_| self.unexpected("true or false"))?)
    }

    whole_numbers! {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_f64(self.0.parse().map_err(|_| self.unexpected("a number"))?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, OptionError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, OptionError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, OptionError> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        f32 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> EnumAccess<'de> for Value<'_> {
    type Error = OptionError;
    type Variant = UnitVariant;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, UnitVariant), OptionError> {
        Ok((seed.deserialize(StrDeserializer::new(self.0))?, UnitVariant))
    }
}

/// Variants of options have no contents.
struct UnitVariant;

impl<'de> de::VariantAccess<'de> for UnitVariant {
    type Error = OptionError;

    fn unit_variant(self) -> Result<(), OptionError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _seed: T) -> Result<T::Value, OptionError> {
        Err(OptionError::new("this value can only be given in a configuration file".to_owned()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, _visitor: V) -> Result<V::Value, OptionError> {
        Err(OptionError::new("this value can only be given in a configuration file".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, OptionError> {
        Err(OptionError::new("this value can only be given in a configuration file".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::path::PathBuf;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
    struct Sample {
        file: Option<PathBuf>,
        busy_poll: bool,
        ring: Option<u32>,
        mode: Mode,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "kebab-case")]
    enum Mode {
        #[default]
        Best,
        ZeroCopy,
    }

    fn error(text: &str) -> String {
        parse::<Sample>(text, Some("file")).unwrap_err().to_string()
    }

    #[test]
    fn words_and_pairs_are_read() {
        let sample: Sample = parse("/tmp/a=b", None).unwrap_or_default();
        assert_eq!(sample, Sample::default());
        let sample: Sample = parse("a.pcap,mode=zero-copy,busy-poll,ring=64", Some("file")).unwrap();
        let expected =
            Sample { file: Some("a.pcap".into()), busy_poll: true, ring: Some(64), mode: Mode::ZeroCopy };
        assert_eq!(sample, expected);
        assert_eq!(parse::<Sample>("", Some("file")), Ok(Sample::default()));
        assert_eq!(
            parse("busy-poll=false,file=a=b", None),
            Ok(Sample { file: Some("a=b".into()), ..Sample::default() })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(error("x=1"), "there is no option 'x': known are file, busy-poll, ring, mode");
        assert_eq!(error("a,turbo"), "there is no option 'turbo': known are file, busy-poll, ring, mode");
        assert_eq!(error("ring=many"), "option 'ring': 'many' is not a whole number from 0 to 4294967295");
        assert_eq!(error("mode=fast"), "option 'mode': 'fast' is unknown: expected best, zero-copy");
        assert_eq!(error("busy-poll=perhaps"), "option 'busy-poll': 'perhaps' is not true or false");
        assert_eq!(error("ring=64,ring=64"), "option 'ring' is there twice: leave one out");
    }

    #[test]
    fn a_missing_option_is_named() {
        #[derive(Debug, Deserialize)]
        struct Needs {
            #[expect(dead_code, reason = "it is never there")]
            interface: String,
        }
        let error = parse::<Needs>("", Some("interface")).unwrap_err();
        assert_eq!(error.to_string(), "option 'interface' is missing");
    }
}
