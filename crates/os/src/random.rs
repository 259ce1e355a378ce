//! Random bytes from the kernel.

use std::io;

use crate::syscall;

/// Fills `buf` from getrandom(2), which is fit for keys. Blocks only in the first moments after boot.
///
/// # Errors
/// When the kernel has no getrandom(2); never on Linux 3.17 or later.
pub fn random_bytes(buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the pointer and the length describe `rest`, which is writable.
        let result = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match syscall::check_len(result) {
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_long_buffers_to_the_end() {
        let (mut a, mut b) = (vec![0; 1000], vec![0; 1000]);
        random_bytes(&mut a).unwrap();
        random_bytes(&mut b).unwrap();
        assert_ne!(a, b);
        // Sixteen zero bytes in a row at either end would mean that part was left out.
        assert_ne!(a[..16], [0; 16]);
        assert_ne!(a[984..], [0; 16]);
        random_bytes(&mut []).unwrap();
    }
}
