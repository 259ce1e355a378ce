//! Values with a unit, in the syntax of scenario files: `20ms`, `100Mbit`, `20MB`.

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time: `500us`, `20ms`, `1.5s`, `2min`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// Bits per second: `64kbit`, `100Mbit`, `1Gbit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// Bytes: `1200B`, `64KiB`, `20MB`, `1GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Suffixes and their factors. A longer one comes before one that it ends in.
type Units = &'static [(&'static str, f64)];

const TIMES: Units = &[("us", 1e-6), ("ms", 1e-3), ("min", 60.0), ("s", 1.0)];
const RATES: Units = &[("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9), ("bit", 1.0)];
const SIZES: Units = &[
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

/// The longest time, the highest rate and the largest size: bounds against typing errors.
const LONGEST: f64 = 86_400.0;
const FASTEST: f64 = 1e12;
const LARGEST: f64 = 1e12;

/// The number before one of the units, times the unit; `None` for anything else, or above `limit`.
fn value(text: &str, units: Units, limit: f64) -> Option<f64> {
    let (number, unit) = units
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))?;
    let number = number.trim_end();
    // Digits and one point: neither signs nor exponents, nor "inf".
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = number.parse::<f64>().ok().filter(|_| plain)? * unit;
    (0.0..=limit).contains(&value).then_some(value)
}

fn text<'de, D: Deserializer<'de>>(from: D, wanted: &str) -> Result<String, D::Error> {
    match toml::Value::deserialize(from)? {
        toml::Value::String(text) => Ok(text),
        other => Err(D::Error::custom(format!("{other} is not a {wanted}"))),
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "time; write \"20ms\", \"1.5s\" or \"2min\", a day at most";
        let text = text(from, WANTED)?;
        let seconds = value(&text, TIMES, LONGEST);
        let seconds = seconds.ok_or_else(|| D::Error::custom(format!("{text:?} is not a {WANTED}")))?;
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "rate; write \"64kbit\", \"100Mbit\" or \"1Gbit\" (a second)";
        let text = text(from, WANTED)?;
        let rate = value(&text, RATES, FASTEST).filter(|rate| *rate >= 1.0);
        Ok(Self(
            rate.ok_or_else(|| D::Error::custom(format!("{text:?} is not a {WANTED}")))? as u64,
        ))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "size; write \"1200B\", \"64KiB\" or \"20MB\"";
        let text = text(from, WANTED)?;
        let size = value(&text, SIZES, LARGEST);
        Ok(Self(
            size.ok_or_else(|| D::Error::custom(format!("{text:?} is not a {WANTED}")))? as u64,
        ))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs_f64() {
            seconds if seconds < 1.0 => write!(f, "{} ms", seconds * 1e3),
            seconds => write!(f, "{seconds} s"),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.0 as f64 / 1e6)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1_000_000 => write!(f, "{} MB", bytes as f64 / 1e6),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

impl Serialize for Time {
    /// Seconds.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Deserialize)]
    struct All {
        time: Option<Time>,
        rate: Option<Rate>,
        size: Option<Size>,
    }

    fn read(text: &str) -> Result<All, String> {
        let table: toml::Table = text.parse().unwrap();
        table.try_into().map_err(|error| error.to_string())
    }

    #[test]
    fn every_unit_has_its_value() {
        let time = |text: &str| read(&format!("time = {text:?}")).unwrap().time.unwrap().0;
        assert_eq!(time("20ms"), Duration::from_millis(20));
        assert_eq!(time("1.5s"), Duration::from_millis(1500));
        assert_eq!(time("2min"), Duration::from_secs(120));
        assert_eq!(time("500 us"), Duration::from_micros(500));
        let rate = |text: &str| read(&format!("rate = {text:?}")).unwrap().rate.unwrap().0;
        assert_eq!(
            (rate("64kbit"), rate("1Gbit"), rate("9bit")),
            (64_000, 1_000_000_000, 9)
        );
        let size = |text: &str| read(&format!("size = {text:?}")).unwrap().size.unwrap().0;
        assert_eq!((size("64KiB"), size("20MB"), size("7B")), (65_536, 20_000_000, 7));
    }

    #[test]
    fn an_invalid_value_is_refused_with_a_valid_one() {
        for bad in [
            "\"20\"",
            "\"-1s\"",
            "\"infs\"",
            "\"1e3s\"",
            "\"ms\"",
            "\"25h\"",
            "20",
            "\"1441min\"",
        ] {
            let error = read(&format!("time = {bad}")).unwrap_err();
            assert!(error.contains("is not a time; write \"20ms\""), "{error}");
        }
        let error = read("rate = \"10Mb\"").unwrap_err();
        assert!(error.contains("\"10Mb\" is not a rate; write"), "{error}");
        assert!(read("rate = \"0Mbit\"").is_err());
        assert!(read("size = 12").unwrap_err().contains("12 is not a size; write"));
    }

    proptest! {
        #[test]
        fn milliseconds_read_back(ms in 0_u64..86_400_000) {
            let read = read(&format!("time = \"{ms}ms\"")).unwrap().time.unwrap().0;
            prop_assert_eq!(read.as_millis(), u128::from(ms));
        }

        #[test]
        fn no_text_is_a_panic(text in ".{0,12}") {
            let _ = (value(&text, TIMES, LONGEST), value(&text, RATES, FASTEST), value(&text, SIZES, LARGEST));
        }
    }
}
