//! Reading and writing of fields.

use super::WireError;

/// What is left of the bytes of a message.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let short = || WireError::new("a message that ends too early");
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(short)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Bytes behind their length in two bytes.
    pub(super) fn short(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.u16()?;
        self.bytes(len.into())
    }

    /// As [`short`](Self::short), for text. What is no UTF-8 is replaced.
    pub(super) fn text(&mut self) -> Result<String, WireError> {
        Ok(String::from_utf8_lossy(self.short()?).into_owned())
    }

    pub(super) fn end(&self) -> Result<(), WireError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(WireError::new("a message with bytes behind its end")),
        }
    }
}

/// Appends bytes behind their length in two bytes. What exceeds 65,535 bytes is cut.
pub(super) fn put_short(to: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    to.extend(len.to_le_bytes());
    to.extend(bytes.iter().take(len.into()));
}

/// Appends text of at most `most` bytes, cut between characters.
pub(super) fn put_text(to: &mut Vec<u8>, text: &str, most: usize) {
    let mut len = text.len().min(most);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    put_short(to, text.get(..len).unwrap_or_default().as_bytes());
}
