//! Bounds-checked reading and writing: the only code of this crate that advances through bytes.

use crate::{NodeAddr, WireError};

/// Reads fields in order; at the end of input its error reports how many bytes the message needs.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            total: bytes.len(),
        }
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.short(n))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array_ref<const N: usize>(&mut self) -> Result<&'a [u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.short(N))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.array_ref().copied()
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn addr(&mut self) -> Result<NodeAddr, WireError> {
        Ok(NodeAddr::new(self.array()?))
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn short(&self, n: usize) -> WireError {
        let consumed = self.total - self.rest.len();
        WireError::TooShort {
            needed: consumed.saturating_add(n),
            got: self.total,
        }
    }
}

/// Writes fields in order. It counts past the end of the buffer, so that [`Writer::finish`] can
/// report the size that would have been enough.
pub(crate) struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, at: 0 }
    }

    pub(crate) fn bytes(&mut self, src: &[u8]) -> &mut Self {
        let end = self.at.saturating_add(src.len());
        if let Some(dst) = self.buf.get_mut(self.at..end) {
            dst.copy_from_slice(src);
        }
        self.at = end;
        self
    }

    pub(crate) fn u8(&mut self, v: u8) -> &mut Self {
        self.bytes(&[v])
    }

    pub(crate) fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn i32(&mut self, v: i32) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn addr(&mut self, v: &NodeAddr) -> &mut Self {
        self.bytes(v.as_bytes())
    }

    pub(crate) fn finish(&self) -> Result<usize, WireError> {
        if self.at > self.buf.len() {
            return Err(WireError::BufferTooSmall {
                needed: self.at,
                got: self.buf.len(),
            });
        }
        Ok(self.at)
    }
}

/// Copies a header of fixed size to the front of `out`.
pub(crate) fn put<const N: usize>(out: &mut [u8], header: &[u8; N]) -> Result<usize, WireError> {
    let got = out.len();
    let dst = out
        .first_chunk_mut::<N>()
        .ok_or(WireError::BufferTooSmall { needed: N, got })?;
    *dst = *header;
    Ok(N)
}

/// A length or count as a two-byte field.
pub(crate) fn len_u16(len: usize) -> Result<u16, WireError> {
    u16::try_from(len).map_err(|_| WireError::TooLong {
        max: usize::from(u16::MAX),
        got: len,
    })
}

pub(crate) fn whole(bytes: &[u8], expected: usize) -> Result<Reader<'_>, WireError> {
    let got = bytes.len();
    match got == expected {
        true => Ok(Reader::new(bytes)),
        false => Err(WireError::WrongLength { expected, got }),
    }
}
