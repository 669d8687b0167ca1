//! Values with their origin.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::{Deref, Range, RangeInclusive};
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use toml::Spanned;

use crate::error::{Fault, OutOfRange};

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// In a program, which needs no place to be told.
    #[default]
    Code,
    /// In a file: these bytes of its text.
    Text(Range<usize>),
    /// On the command line: the flag as it was given, as in `--mtu west=9000`.
    Flag(String),
}

/// A value and where it was written. Equal values are equal wherever that was.
#[derive(Debug, Clone, Default)]
pub struct Located<T> {
    value: T,
    origin: Origin,
}

impl<T> Located<T> {
    /// A value from this origin.
    pub const fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// A value from the command line: `flag` is the flag's name, as in `--mtu`, `text` what was given for it.
    pub fn flag(flag: &str, text: &str, value: T) -> Self {
        Self { value, origin: Origin::Flag(format!("{flag} {text}")) }
    }

    /// Another value from the same origin.
    pub fn with<U>(&self, value: U) -> Located<U> {
        Located { value, origin: self.origin.clone() }
    }

    /// Something made of the value.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Located<U> {
        Located { value: make(self.value), origin: self.origin }
    }

    /// Where it was written.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The value.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Something is wrong with this value.
    pub fn fault<P>(&self, problem: impl Into<P>) -> Fault<P> {
        Fault::new(self.origin.clone(), problem)
    }
}

impl Located<i64> {
    /// The number, if it is within these bounds, which are not negative.
    ///
    /// # Errors
    /// [`OutOfRange`], which calls the number `what`.
    pub fn within(&self, what: &str, bounds: RangeInclusive<u32>) -> Result<u32, Fault<OutOfRange>> {
        match u32::try_from(self.value) {
            Ok(number) if bounds.contains(&number) => Ok(number),
            _ => {
                let (minimum, maximum) = ((*bounds.start()).into(), (*bounds.end()).into());
                Err(self.fault(OutOfRange { what: what.to_owned(), value: self.value, minimum, maximum }))
            }
        }
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> From<T> for Located<T> {
    fn from(value: T) -> Self {
        Self { value, origin: Origin::Code }
    }
}

impl From<&str> for Located<String> {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Located<T> {}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        let origin = Origin::Text(spanned.span());
        Ok(Self { value: spanned.into_inner(), origin })
    }
}

/// A value that is written as text, for `#[serde(deserialize_with = "from_text")]`.
///
/// # Errors
/// The deserializer's, with what `T` says of a text that is none.
pub fn from_text<'de, D, T>(deserializer: D) -> Result<Located<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    Located::<FromText<T>>::deserialize(deserializer).map(|located| located.map(|FromText(value)| value))
}

/// The same for a value that may be left out, which needs `default` beside it.
///
/// # Errors
/// The deserializer's, with what `T` says of a text that is none.
pub fn optional_from_text<'de, D, T>(deserializer: D) -> Result<Option<Located<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    from_text(deserializer).map(Some)
}

/// The same for a list.
///
/// # Errors
/// The deserializer's, with what `T` says of a text that is none.
pub fn list_from_text<'de, D, T>(deserializer: D) -> Result<Vec<Located<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let list = Vec::<Located<FromText<T>>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|located| located.map(|FromText(value)| value)).collect())
}

/// Reads inside of [`Located`], so that what `T` says is about this value's place.
struct FromText<T>(T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for FromText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<T: FromStr<Err: Display>> Visitor<'_> for Read<T> {
            type Value = FromText<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FromText<T>, E> {
                text.parse().map(FromText).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Read(PhantomData))
    }
}
