//! Reads TOML setting by setting, so that every fault has its key and its position.

use std::ops::RangeInclusive;

use toml::de::{DeTable, DeValue};

use super::advice;
use super::error::Problem;

/// A fault at one position of the text.
#[derive(Debug)]
pub(super) struct Fault {
    /// The position, in bytes from the start of the text.
    pub(super) at: usize,
    /// The full key, such as `peer.addresses[0]`. Empty if no key can be named.
    pub(super) key: String,
    /// The problem.
    pub(super) problem: Problem,
}

/// A value and its position.
pub(super) struct Item<T> {
    pub(super) value: T,
    at: usize,
    key: String,
}

impl<T> Item<T> {
    /// The position, in bytes from the start of the text.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns a fault of this value.
    pub(super) fn fault(&self, problem: Problem) -> Fault {
        Fault {
            at: self.at,
            key: self.key.clone(),
            problem,
        }
    }

    /// Converts the value, or returns a fault of it.
    pub(super) fn map<U>(&self, make: impl FnOnce(&T) -> Result<U, Problem>) -> Result<U, Fault> {
        make(&self.value).map_err(|problem| self.fault(problem))
    }
}

/// One table of the text. Settings are taken out of it; [`finish`](Self::finish) refuses those that
/// are left.
pub(super) struct Section<'i> {
    /// Full key of the table; empty for the root.
    path: String,
    at: usize,
    table: DeTable<'i>,
    /// The keys requested so far, which the message about an unknown key lists.
    known: Vec<&'static str>,
}

impl<'i> Section<'i> {
    /// The root table of `text`.
    pub(super) fn parse(text: &'i str) -> Result<Self, Fault> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self {
                path: String::new(),
                at: 0,
                table: table.into_inner(),
                known: Vec::new(),
            }),
            Err(error) => Err(Fault {
                at: error.span().map_or(text.len(), |span| span.start),
                key: String::new(),
                problem: Problem::Syntax(one_line(error.message())),
            }),
        }
    }

    /// The table `key`, or an empty one.
    pub(super) fn section(&mut self, key: &'static str) -> Result<Self, Fault> {
        let Some(item) = self.take(key) else {
            return Ok(Self {
                path: self.full(key),
                at: self.at,
                table: DeTable::new(),
                known: Vec::new(),
            });
        };
        item.into_section("a table: [name]")
    }

    /// The array of tables `key`.
    pub(super) fn sections(&mut self, key: &'static str) -> Result<Vec<Self>, Fault> {
        const WANTED: &str = "a list of tables: [[peer]]";
        let Some(item) = self.take(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(entries) = item.value else {
            return Err(item.wrong_type(WANTED));
        };
        let key = item.key;
        entries
            .into_iter()
            .map(|entry| {
                let at = entry.span().start;
                let key = key.clone();
                let value = entry.into_inner();
                Item { value, at, key }.into_section(WANTED)
            })
            .collect()
    }

    /// The string `key`.
    pub(super) fn string(&mut self, key: &'static str) -> Result<Option<Item<String>>, Fault> {
        self.take(key).map(Item::into_string).transpose()
    }

    /// The array of strings `key`.
    pub(super) fn strings(&mut self, key: &'static str) -> Result<Option<Item<Vec<Item<String>>>>, Fault> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        let DeValue::Array(entries) = item.value else {
            return Err(item.wrong_type("a list of strings: [\"...\"]"));
        };
        let value = entries
            .into_iter()
            .enumerate()
            .map(|(index, entry)| {
                Item {
                    at: entry.span().start,
                    key: format!("{}[{index}]", item.key),
                    value: entry.into_inner(),
                }
                .into_string()
            })
            .collect::<Result<_, _>>()?;
        Ok(Some(Item {
            value,
            at: item.at,
            key: item.key,
        }))
    }

    /// The truth value `key`.
    pub(super) fn boolean(&mut self, key: &'static str) -> Result<Option<Item<bool>>, Fault> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        let DeValue::Boolean(value) = item.value else {
            return Err(item.wrong_type("true or false"));
        };
        Ok(Some(Item {
            value,
            at: item.at,
            key: item.key,
        }))
    }

    /// The integer `key`, refused outside `range`. `unit` is for the message only.
    pub(super) fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
        unit: &'static str,
    ) -> Result<Option<Item<u32>>, Fault> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        let DeValue::Integer(integer) = &item.value else {
            return Err(item.wrong_type("a whole number"));
        };
        let value = u32::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|value| range.contains(value));
        match value {
            Some(value) => Ok(Some(Item {
                value,
                at: item.at,
                key: item.key,
            })),
            None => Err(item.fault(Problem::OutOfRange {
                found: integer.to_string(),
                min: *range.start(),
                max: *range.end(),
                unit,
            })),
        }
    }

    /// Whether `key` is the text `"auto"`; if so, it is taken.
    pub(super) fn is_auto(&mut self, key: &'static str) -> bool {
        let auto = self.table.get(key).and_then(|value| value.get_ref().as_str()) == Some("auto");
        if auto {
            self.take(key);
        }
        auto
    }

    /// Returns a fault of the table itself for a key that it lacks.
    pub(super) fn missing(&self, key: &'static str, to_do: &'static str) -> Fault {
        Fault {
            at: self.at,
            key: self.full(key),
            problem: Problem::Missing { to_do },
        }
    }

    /// Refuses the first key that was not read.
    pub(super) fn finish(self) -> Result<(), Fault> {
        let unknown = self.table.iter().min_by_key(|(key, _)| key.span().start);
        match unknown {
            None => Ok(()),
            Some((key, _)) => Err(Fault {
                at: key.span().start,
                key: self.full(&printable(key.get_ref())),
                problem: Problem::UnknownKey {
                    instead: self.meant(key.get_ref()),
                    known: self.known,
                },
            }),
        }
    }

    /// The known key that the unknown `key` is probably meant to be.
    fn meant(&self, key: &str) -> Option<String> {
        if let Some(near) = advice::nearest(key, &self.known) {
            return Some(format!("did you mean {near}?"));
        }
        let table = advice::table_of(key).filter(|_| self.path.is_empty())?;
        Some(format!("it belongs below a line [{table}]"))
    }

    fn take(&mut self, key: &'static str) -> Option<Item<DeValue<'i>>> {
        self.known.push(key);
        let (name, value) = self.table.remove_entry(key)?;
        // The position of a table is its header, that of a value its own line.
        let at = match value.get_ref() {
            DeValue::Table(_) => name.span().start,
            _ => value.span().start,
        };
        Some(Item {
            value: value.into_inner(),
            at,
            key: self.full(key),
        })
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

impl<'i> Item<DeValue<'i>> {
    fn into_string(self) -> Result<Item<String>, Fault> {
        match self.value {
            DeValue::String(text) => Ok(Item {
                value: text.into_owned(),
                at: self.at,
                key: self.key,
            }),
            _ => Err(self.wrong_type("a string: \"...\"")),
        }
    }

    fn wrong_type(&self, wanted: &'static str) -> Fault {
        self.fault(Problem::WrongType {
            found: type_name(&self.value),
            wanted,
        })
    }

    fn into_section(self, wanted: &'static str) -> Result<Section<'i>, Fault> {
        match self.value {
            DeValue::Table(table) => Ok(Section {
                path: self.key,
                at: self.at,
                table,
                known: Vec::new(),
            }),
            _ => Err(self.wrong_type(wanted)),
        }
    }
}

/// The name of the type in a message.
fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The text on one line, without control characters.
fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(printable).collect();
    words.join(" ")
}

/// A name from the file in a form that is safe in a message.
pub(super) fn printable(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown: String = text.chars().flat_map(char::escape_debug).take(LONGEST).collect();
    if shown.len() >= LONGEST {
        shown.push_str("...");
    }
    shown
}
