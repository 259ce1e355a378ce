//! Reads TOML setting by setting, so that every fault has its key and its line.
//!
//! docs/decisions/0031-own-toml-reader.md says why serde does not do this.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::advice;
use super::error::Problem;

/// The longest time that a setting may have, in seconds: one day.
const DAY_S: u32 = 86_400;

/// A fault in one line of the text.
#[derive(Debug)]
pub(super) struct Fault {
    /// The line, from 1.
    pub(super) line: usize,
    /// The full key, such as `peer.addresses[0]`. Empty if no key can be named.
    pub(super) key: String,
    /// The problem.
    pub(super) problem: Problem,
}

/// The positions at which the lines of a text end.
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &[u8]) -> Self {
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        Self(ends.map(|(at, _)| at).collect())
    }

    /// The line, from 1, of the byte `at`.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.0.partition_point(|end| *end < at)
    }
}

/// A value and its place.
pub(super) struct Item<T> {
    pub(super) value: T,
    /// The line, from 1.
    pub(super) line: usize,
    key: String,
}

impl<T> Item<T> {
    /// Returns a fault of this value.
    pub(super) fn fault(&self, problem: Problem) -> Fault {
        Fault {
            line: self.line,
            key: self.key.clone(),
            problem,
        }
    }
}

/// The type of a text, and how it is written.
pub(super) const STRING: &str = "a string: \"...\"";

impl Item<String> {
    /// Converts the text, or returns a fault of it.
    pub(super) fn map<U>(&self, parse: impl FnOnce(&str) -> Result<U, Problem>) -> Result<U, Fault> {
        parse(&self.value).map_err(|problem| self.fault(problem))
    }
}

impl<'i> Item<DeValue<'i>> {
    /// Converts the value by `convert`, which returns `None` if its type is another one.
    fn of_type<T>(
        self,
        wanted: &'static str,
        convert: impl FnOnce(&DeValue<'i>) -> Option<T>,
    ) -> Result<Item<T>, Fault> {
        match convert(&self.value) {
            Some(value) => Ok(Item {
                value,
                line: self.line,
                key: self.key,
            }),
            None => Err(self.fault(Problem::WrongType {
                found: type_name(&self.value),
                wanted,
            })),
        }
    }

    fn text(self) -> Result<Item<String>, Fault> {
        self.of_type(STRING, |value| value.as_str().map(str::to_owned))
    }
}

/// One table of the text. Settings are taken out of it; [`finish`](Self::finish) refuses those that
/// are left.
///
/// A method with the parameter `setting` sets it to the value of `key`, and leaves it as it is if
/// the file does not have the key.
pub(super) struct Section<'i> {
    /// Full key of the table; empty for the root.
    path: String,
    line: usize,
    table: DeTable<'i>,
    lines: &'i Lines,
    /// The keys requested so far, which the message about an unknown key lists, and the lines of
    /// those that the file has.
    known: Vec<(&'static str, Option<usize>)>,
}

impl<'i> Section<'i> {
    /// The root table of `text`, which has these lines.
    pub(super) fn parse(text: &'i str, lines: &'i Lines) -> Result<Self, Fault> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self {
                path: String::new(),
                line: 1,
                table: table.into_inner(),
                lines,
                known: Vec::new(),
            }),
            Err(error) => {
                let at = error.span().map_or(text.len(), |span| span.start);
                Err(Fault {
                    line: lines.line(at),
                    key: String::new(),
                    problem: Problem::Syntax(advice::syntax(text, at, &one_line(error.message()))),
                })
            }
        }
    }

    /// The table `key`, or an empty one.
    pub(super) fn section(&mut self, key: &'static str) -> Result<Self, Fault> {
        let item = self.take(key).unwrap_or_else(|| Item {
            value: DeValue::Table(DeTable::new()),
            line: self.line,
            key: self.full(key),
        });
        self.inner(item, "a table: [name]")
    }

    /// The array of tables `key`.
    pub(super) fn sections(&mut self, key: &'static str) -> Result<Vec<Self>, Fault> {
        const WANTED: &str = "a list of tables: [[peer]]";
        let items = self.items(key, WANTED)?.unwrap_or_default();
        items.into_iter().map(|item| self.inner(item, WANTED)).collect()
    }

    /// The string `key`.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<Item<String>>, Fault> {
        self.take(key).map(Item::text).transpose()
    }

    /// The array of strings `key`.
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Option<Vec<Item<String>>>, Fault> {
        let Some(items) = self.items(key, "a list of strings: [\"...\"]")? else {
            return Ok(None);
        };
        let texts = items.into_iter().enumerate().map(|(index, mut item)| {
            item.key += &format!("[{index}]");
            item.text()
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// Refuses the key `old`, which was the name of `new` in earlier versions.
    pub(super) fn renamed(&self, old: &str, new: &'static str) -> Result<(), Fault> {
        let found = self.table.iter().find(|(key, _)| key.get_ref() == old);
        found.map_or(Ok(()), |(key, _)| {
            Err(Fault {
                line: self.lines.line(key.span().start),
                key: self.full(old),
                problem: Problem::Renamed(new),
            })
        })
    }

    /// Reads a string with `parse`.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        setting: &mut T,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Result<(), Fault> {
        if let Some(item) = self.text(key)? {
            *setting = item.map(parse)?;
        }
        Ok(())
    }

    /// Reads each string of an array with `parse`.
    pub(super) fn list<T, C: FromIterator<T>>(
        &mut self,
        key: &'static str,
        setting: &mut C,
        parse: impl Fn(&str) -> Result<T, Problem>,
    ) -> Result<(), Fault> {
        if let Some(items) = self.texts(key)? {
            *setting = items.iter().map(|item| item.map(&parse)).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Reads a string that is one of these names.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        setting: &mut T,
        values: &[(&'static str, T)],
    ) -> Result<(), Fault> {
        self.parsed(key, setting, |text| {
            let value = values.iter().find(|(name, _)| *name == text);
            value.map(|(_, value)| *value).ok_or_else(|| Problem::NotOneOf {
                found: printable(text),
                allowed: values.iter().map(|(name, _)| *name).collect(),
            })
        })
    }

    /// Reads a truth value.
    pub(super) fn flag(&mut self, key: &'static str, setting: &mut bool) -> Result<(), Fault> {
        if let Some(item) = self.take(key) {
            *setting = item.of_type("true or false", DeValue::as_bool)?.value;
        }
        Ok(())
    }

    /// Reads a time in whole seconds, at most a day.
    pub(super) fn seconds(&mut self, key: &'static str, setting: &mut Duration) -> Result<(), Fault> {
        if let Some(seconds) = self.integer::<u32>(key, 1..=DAY_S, "seconds")? {
            *setting = Duration::from_secs(seconds.into());
        }
        Ok(())
    }

    /// Reads an integer in `range`. `unit` is for messages only.
    pub(super) fn number<T: TryFrom<u32>>(
        &mut self,
        key: &'static str,
        setting: &mut T,
        range: RangeInclusive<u32>,
        unit: &'static str,
    ) -> Result<(), Fault> {
        if let Some(number) = self.integer(key, range, unit)? {
            *setting = number;
        }
        Ok(())
    }

    /// Reads an integer in `range`, or `"auto"`, which is `None`.
    pub(super) fn number_or_auto<T: TryFrom<u32>>(
        &mut self,
        key: &'static str,
        setting: &mut Option<T>,
        range: RangeInclusive<u32>,
        unit: &'static str,
    ) -> Result<(), Fault> {
        if self.table.get(key).and_then(|value| value.get_ref().as_str()) == Some("auto") {
            *setting = self.take(key).and(None);
            return Ok(());
        }
        *setting = self.integer(key, range, unit)?;
        Ok(())
    }

    fn integer<T: TryFrom<u32>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
        unit: &'static str,
    ) -> Result<Option<T>, Fault> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        let item = item.of_type("a whole number", |value| value.as_integer().cloned())?;
        let value = u32::from_str_radix(item.value.as_str(), item.value.radix()).ok();
        let value = value.filter(|value| range.contains(value));
        match value.and_then(|value| T::try_from(value).ok()) {
            Some(value) => Ok(Some(value)),
            None => Err(item.fault(Problem::OutOfRange {
                found: item.value.to_string(),
                min: *range.start(),
                max: *range.end(),
                unit,
            })),
        }
    }

    /// Returns a fault of the first of `keys`, at the first of them that the file has, or else at
    /// the table itself.
    pub(super) fn fault(&self, keys: &[&'static str], problem: Problem) -> Fault {
        let line = |key: &&'static str| self.known.iter().find(|(known, _)| known == key)?.1;
        Fault {
            line: keys.iter().find_map(line).unwrap_or(self.line),
            key: self.full(keys.first().unwrap_or(&"")),
            problem,
        }
    }

    /// Refuses the first key that was not read.
    pub(super) fn finish(self) -> Result<(), Fault> {
        let Some((key, _)) = self.table.iter().min_by_key(|(key, _)| key.span().start) else {
            return Ok(());
        };
        let known: Vec<_> = self.known.iter().map(|(key, _)| *key).collect();
        let instead = match advice::nearest(key.get_ref(), &known) {
            Some(near) => Some(format!("did you mean {near}?")),
            None if self.path.is_empty() => {
                advice::table_of(key.get_ref()).map(|table| format!("it belongs below a line [{table}]"))
            }
            None => None,
        };
        Err(Fault {
            line: self.lines.line(key.span().start),
            key: self.full(&printable(key.get_ref())),
            problem: Problem::UnknownKey { instead, known },
        })
    }

    fn take(&mut self, key: &'static str) -> Option<Item<DeValue<'i>>> {
        let entry = self.table.remove_entry(key);
        // The position of a table is its header, that of a value its own line.
        let line = entry.as_ref().map(|(name, value)| match value.get_ref() {
            DeValue::Table(_) => self.lines.line(name.span().start),
            _ => self.lines.line(value.span().start),
        });
        self.known.push((key, line));
        Some(Item {
            value: entry?.1.into_inner(),
            line: line?,
            key: self.full(key),
        })
    }

    /// The entries of the array `key`.
    fn items(&mut self, key: &'static str, wanted: &'static str) -> Result<Option<Vec<Item<DeValue<'i>>>>, Fault> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        let array = item.of_type(wanted, |value| value.as_array().cloned())?;
        let entries = array.value.into_iter().map(|entry| Item {
            line: self.lines.line(entry.span().start),
            key: array.key.clone(),
            value: entry.into_inner(),
        });
        Ok(Some(entries.collect()))
    }

    fn inner(&self, item: Item<DeValue<'i>>, wanted: &'static str) -> Result<Self, Fault> {
        let item = item.of_type(wanted, |value| value.as_table().cloned())?;
        Ok(Self {
            path: item.key,
            line: item.line,
            table: item.value,
            lines: self.lines,
            known: Vec::new(),
        })
    }

    fn full(&self, key: &str) -> String {
        match &*self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
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
