//! The form in documents of numbers that count thousandths: 1,500 microseconds are 1.5 ms, and 30 thousandths of all
//! frames are a share of 0.03.

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

/// Writes a number of thousandths.
///
/// # Errors
/// Those of the serializer.
pub(crate) fn serialize<S: Serializer>(thousandths: &Option<u32>, to: S) -> Result<S::Ok, S::Error> {
    thousandths.map(|n| f64::from(n) / 1e3).serialize(to)
}

/// Reads a number and rounds it to thousandths. A number outside their range becomes the next one inside.
///
/// # Errors
/// Those of the deserializer.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.map(|n| (n * 1e3).round() as u32))
}
