//! Secrets as text: of a link that asks to join, and of the answer.

use std::fmt;

use zeroize::Zeroizing;

/// A text that is not shown, and is overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both are the same text and not empty, in a time that depends on the lengths alone.
    #[must_use]
    pub fn matches(&self, other: &str) -> bool {
        let differ = self.0.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        !other.is_empty() && self.0.len() == other.len() && std::hint::black_box(differ) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
