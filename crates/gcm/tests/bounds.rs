//! Loads and stores are masked at the ends of a message. Here an inaccessible page lies directly
//! behind or before the message.
#![cfg(unix)]
#![allow(unsafe_code, reason = "pages are mapped and protected")]

use weft_gcm::Aes256Gcm;
use weft_os::test_support::skip;

/// Two pages between inaccessible ones, mapped until the test ends.
struct Pages(*mut u8);

const PAGE: usize = 4_096;
const ROOM: usize = 2 * PAGE;

impl Pages {
    fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new mappings, of which the inner two pages are made accessible.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), ROOM + 2 * PAGE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let inner = at.cast::<u8>().add(PAGE);
            assert_eq!(
                libc::mprotect(inner.cast(), ROOM, libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            Self(inner)
        }
    }

    fn room(&mut self) -> &mut [u8] {
        // SAFETY: two accessible pages, borrowed from the only owner.
        unsafe { std::slice::from_raw_parts_mut(self.0, ROOM) }
    }
}

#[test]
fn nothing_beyond_the_data_is_touched() {
    let Some(cipher) = Aes256Gcm::new(&[3; 32]) else {
        return skip("this processor has no AES in vectors of 512 bits");
    };
    let (mut data, mut aad, mut rest) = (Pages::new(), Pages::new(), Pages::new());
    let nonce = [4; 12];
    for len in (0..1_600).chain([PAGE, PAGE + 1, ROOM]) {
        for at in [0, ROOM - len] {
            let data = &mut data.room()[at..at + len];
            let aad_len = len % 50;
            let aad = if at == 0 {
                &aad.room()[..aad_len]
            } else {
                &aad.room()[ROOM - aad_len..]
            };
            data.fill(len as u8);
            let tag = cipher.seal(&nonce, aad, data);
            assert_eq!(cipher.open(&nonce, aad, data, &tag), Ok(()), "{len} bytes");
            assert!(data.iter().all(|byte| *byte == len as u8), "{len} bytes");
            let part = len - len.min(60);
            let rest = if at == 0 {
                &rest.room()[..part]
            } else {
                &rest.room()[ROOM - part..]
            };
            let _ = cipher.seal_from(&nonce, aad, data, rest);
        }
    }
}
