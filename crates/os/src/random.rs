//! Random bytes from the kernel.

use std::convert::Infallible;
use std::io;

use rand_core::{TryCryptoRng, TryRng};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

/// The kernel's generator behind the trait of `rand_core`. It has no state, so a copy of this
/// process's memory reveals nothing about earlier output, and two copies of a machine generate
/// different bytes.
///
/// It ends the process if the kernel returns no random bytes, which cannot happen after boot: a
/// node must not continue with keys that can be guessed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SystemRng;

impl TryRng for SystemRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, buf: &mut [u8]) -> Result<(), Infallible> {
        if random_bytes(buf).is_err() {
            std::process::abort();
        }
        Ok(())
    }
}

impl TryCryptoRng for SystemRng {}

/// Fills `buf` from getrandom(2), which is suitable for keys. Blocks only in the first moments
/// after boot.
///
/// # Errors
/// If the kernel has no getrandom(2); never on Linux 3.17 or later.
pub fn random_bytes(buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::empty()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand_core::Rng as _;

    use super::*;

    /// What an attacker who copies the process's memory after a handshake could compute from a
    /// generator with a state.
    #[test]
    fn the_generator_has_no_state_that_gives_back_what_it_drew() {
        assert_eq!(size_of::<SystemRng>(), 0);
        let mut rng = SystemRng;
        let mut again = rng;
        let (mut first, mut second) = ([0; 32], [0; 32]);
        rng.fill_bytes(&mut first);
        again.fill_bytes(&mut second);
        assert_ne!(first, second, "a copy of it draws other bytes");
        assert_ne!(rng.next_u64(), rng.next_u64());
        assert!((0..8).any(|_| rng.next_u32() != rng.next_u32()));
    }

    #[test]
    fn fills_long_buffers_to_the_end() {
        let (mut a, mut b) = (vec![0; 1000], vec![0; 1000]);
        random_bytes(&mut a).unwrap();
        random_bytes(&mut b).unwrap();
        assert_ne!(a, b);
        // Sixteen zero bytes in a row at either end would mean that a part was not filled.
        assert_ne!(a[..16], [0; 16]);
        assert_ne!(a[984..], [0; 16]);
        random_bytes(&mut []).unwrap();
    }
}
