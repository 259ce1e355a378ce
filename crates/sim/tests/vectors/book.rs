//! The text file of examples: `name length value`, the value in hexadecimal or, with length `text`,
//! as text.

use std::fmt::Write;

/// Collects the lines of the file.
#[derive(Default)]
pub struct Book {
    text: String,
}

impl Book {
    /// Starts a section; `about` becomes comment lines.
    pub fn section(&mut self, name: &str, about: &[&str]) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        writeln!(self.text, "[{name}]").unwrap();
        self.note(about);
    }

    /// Comment lines.
    pub fn note(&mut self, about: &[&str]) {
        for line in about {
            writeln!(self.text, "# {line}").unwrap();
        }
    }

    /// Adds bytes in wire order.
    pub fn bytes(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        let line = format!("{name} {} {}", value.len(), hex::encode(value));
        writeln!(self.text, "{}", line.trim_end()).unwrap();
    }

    /// Adds a text for readers.
    pub fn text(&mut self, name: &str, value: &str) {
        writeln!(self.text, "{name} text {value}").unwrap();
    }

    /// Returns the whole text.
    pub fn finish(self) -> String {
        self.text
    }
}
