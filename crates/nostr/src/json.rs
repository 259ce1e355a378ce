//! Limits in front of the JSON reader: what a text may make it allocate, and how deep it nests.
//!
//! serde_json reads any text without a fault, and refuses more than 128 levels. A value takes up to
//! thirty times the memory of its text, so the number of values is bounded before anything is built.

use thiserror::Error;

/// What a text may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Its length in bytes.
    pub bytes: usize,
    /// Arrays and objects within each other.
    pub depth: usize,
    /// Arrays, objects, and commas and colons between values.
    pub marks: usize,
}

/// A message of a relay: an array, an event, its tags, a tag. 4,096 marks are more than a thousand
/// tags.
pub const MESSAGE: Limits = Limits {
    bytes: crate::event::MAX_EVENT + 256,
    depth: 4,
    marks: 4_096,
};

/// A document inside an event: an object, a list, an object in it.
pub const DOCUMENT: Limits = Limits {
    bytes: 8_192,
    depth: 3,
    marks: 512,
};

/// The reason why a text is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OverLimit {
    /// More bytes than [`Limits::bytes`].
    #[error("the text has {0} bytes, which are too many")]
    Bytes(usize),
    /// More levels than [`Limits::depth`].
    #[error("the text nests too deep")]
    Depth,
    /// More marks than [`Limits::marks`].
    #[error("the text has too many values")]
    Marks,
}

/// Checks a text in one pass without an allocation. Whether it is JSON is for the reader to find
/// out.
///
/// # Errors
/// [`OverLimit`]: the first limit that the text exceeds.
pub fn check(text: &[u8], limits: Limits) -> Result<(), OverLimit> {
    if text.len() > limits.bytes {
        return Err(OverLimit::Bytes(text.len()));
    }
    let (mut depth, mut marks) = (0_usize, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text {
        if quoted {
            (quoted, escaped) = (escaped || *byte != b'"', !escaped && *byte == b'\\');
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'[' | b'{' => (depth, marks) = (depth + 1, marks + 1),
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' => marks += 1,
            _ => {}
        }
        if depth > limits.depth {
            return Err(OverLimit::Depth);
        }
        if marks > limits.marks {
            return Err(OverLimit::Marks);
        }
    }
    Ok(())
}

/// A text of another node for people: at most `most` characters, without control characters and
/// those that change the direction of writing.
#[must_use]
pub fn plain(text: &str, most: usize) -> String {
    let shown = text.chars().take(most);
    shown.map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const SMALL: Limits = Limits {
        bytes: 64,
        depth: 2,
        marks: 6,
    };

    #[test]
    fn each_limit_has_its_error() {
        assert_eq!(check(&[b' '; 65], SMALL), Err(OverLimit::Bytes(65)));
        assert_eq!(check(b"[[[", SMALL), Err(OverLimit::Depth));
        assert_eq!(check(b"[{\"a\":[1]}]", SMALL), Err(OverLimit::Depth));
        assert_eq!(check(b"[1,2,3,4,5,6]", SMALL), Ok(()));
        assert_eq!(check(b"[1,2,3,4,5,6,7]", SMALL), Err(OverLimit::Marks));
        assert_eq!(check(b"{},{},{},{}", SMALL), Err(OverLimit::Marks));
    }

    #[test]
    fn strings_count_as_one_value_whatever_they_contain() {
        assert_eq!(check(br#"["[[[{{{,,,,,,,,::::","\"[[[[","\\"]"#, SMALL), Ok(()));
        assert_eq!(check(br#"["\\",[["#, SMALL), Err(OverLimit::Depth));
        assert_eq!(check("[\"\u{5b}é,,,,,,,,,\"]".as_bytes(), SMALL), Ok(()));
    }

    #[test]
    fn texts_for_people_have_no_controls() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c\nd", 20), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
        assert_eq!(plain("ééé", 2), "éé");
    }

    /// The depth of a value, and the marks of its text.
    fn measure(value: &Value) -> (usize, usize) {
        let inner = |values: &mut dyn Iterator<Item = &Value>, each: usize| {
            let (mut depth, mut marks, mut count) = (0, 0, 0);
            for value in values {
                let (d, m) = measure(value);
                (depth, marks, count) = (depth.max(d), marks + m + each, count + 1_usize);
            }
            (depth + 1, 1 + marks + count.saturating_sub(1))
        };
        match value {
            Value::Array(values) => inner(&mut values.iter(), 0),
            Value::Object(fields) => inner(&mut fields.values(), 1),
            _ => (0, 0),
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<i64>().prop_map(Value::from), ".*".prop_map(Value::String)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn limits_are_those_of_the_values(value in values()) {
            let text = value.to_string();
            let (depth, marks) = measure(&value);
            let limits = Limits { bytes: text.len(), depth, marks };
            prop_assert_eq!(check(text.as_bytes(), limits), Ok(()));
            if depth > 0 {
                let shallow = Limits { depth: depth - 1, ..limits };
                prop_assert_eq!(check(text.as_bytes(), shallow), Err(OverLimit::Depth));
                let few = Limits { marks: marks - 1, ..limits };
                prop_assert_eq!(check(text.as_bytes(), few), Err(OverLimit::Marks));
            }
        }
    }
}
