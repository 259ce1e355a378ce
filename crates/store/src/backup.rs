//! The networks of a node, in the text of its encrypted key.
//!
//! ```text
//! # npub1...
//! ncryptsec1...
//! # weft.backup/1: the networks of this node, encrypted with its key
//! #  6f12...
//! #  ...
//! ```
//!
//! To programs that know NIP-49 alone, all but the key is comment. The lines with two spaces are
//! hexadecimal digits: a nonce of 24 bytes, and a JSON list of the files of networks, sealed with
//! XChaCha20-Poly1305. Its key is HKDF-SHA256 of the secret key, without salt, with `weft.backup/1` as
//! info, which is the associated data as well. The passphrase opens both.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;
use weft_noise::SecretKey;
use zeroize::Zeroizing;

/// The name of the format, with its version.
const FORMAT: &str = "weft.backup/1";
const NONCE: usize = 24;
/// Bytes of a line.
const LINE: usize = 40;

/// The reason why a text has no networks that can be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A later version of Weft wrote it.
    #[error("the networks are in the format {0}; this weft reads {FORMAT}")]
    Newer(String),
    /// The lines are not what was written, or not those of this key.
    #[error("the networks are incomplete or changed, or not those of this key")]
    Wrong,
}

/// Returns lines with networks, for the text of the key. `nonce` must never be the same twice.
///
/// # Errors
/// [`BackupError::Wrong`], which no input is known to lead to.
pub fn seal(secret: &SecretKey, networks: &[String], nonce: &[u8; NONCE]) -> Result<String, BackupError> {
    let plain = serde_json::to_vec(networks).map_err(|_| BackupError::Wrong)?;
    let payload = Payload {
        msg: &plain,
        aad: FORMAT.as_bytes(),
    };
    let sealed = cipher(secret)?.encrypt(&XNonce::from(*nonce), payload);
    let bytes = [&nonce[..], &sealed.map_err(|_| BackupError::Wrong)?].concat();
    let lines = bytes.chunks(LINE).map(|line| format!("#  {}\n", hex::encode(line)));
    let head = format!("# {FORMAT}: the networks of this node, encrypted with its key\n");
    Ok(head + &lines.collect::<String>())
}

/// Reads the networks in the text of a key: the text of the file of each. A text without any has none.
///
/// # Errors
/// [`BackupError`]
pub fn open(text: &str, secret: &SecretKey) -> Result<Vec<String>, BackupError> {
    let mut lines = text.lines();
    // The owner may have written comments of its own in front.
    let format = |line: &'_ str| {
        let (format, _) = line.strip_prefix("# ")?.split_once(':')?;
        format.starts_with("weft.backup/").then(|| format.to_owned())
    };
    let Some(format) = lines.find_map(format) else {
        return Ok(Vec::new());
    };
    if format != FORMAT {
        return Err(BackupError::Newer(format.escape_debug().to_string()));
    }
    let digits: String = lines
        .filter_map(|line| line.strip_prefix("#  "))
        .map(str::trim)
        .collect();
    let bytes = hex::decode(digits).map_err(|_| BackupError::Wrong)?;
    let (nonce, sealed) = bytes.split_first_chunk::<NONCE>().ok_or(BackupError::Wrong)?;
    let payload = Payload {
        msg: sealed,
        aad: FORMAT.as_bytes(),
    };
    let plain = cipher(secret)?.decrypt(&XNonce::from(*nonce), payload);
    serde_json::from_slice(&plain.map_err(|_| BackupError::Wrong)?).map_err(|_| BackupError::Wrong)
}

fn cipher(secret: &SecretKey) -> Result<XChaCha20Poly1305, BackupError> {
    let mut key = Zeroizing::new([0; 32]);
    let hkdf = Hkdf::<Sha256>::new(None, secret.to_bytes().as_slice());
    hkdf.expand(FORMAT.as_bytes(), &mut *key)
        .map_err(|_| BackupError::Wrong)?;
    Ok(XChaCha20Poly1305::new(&(*key).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(number: u8) -> SecretKey {
        SecretKey::from_bytes(&[number; 32]).unwrap()
    }

    #[test]
    fn networks_are_read_as_they_were_sealed() {
        for networks in [
            vec![],
            vec!["{}".to_owned()],
            vec!["a".repeat(100_000), "ü\n# ".to_owned()],
        ] {
            let lines = seal(&secret(1), &networks, &[7; NONCE]).unwrap();
            assert!(
                lines.lines().all(|line| line.starts_with('#') && line.len() < 90),
                "{lines}"
            );
            let text = format!("# npub1xyz\r\nncryptsec1xyz\n{}", lines.replace('\n', "\r\n"));
            assert_eq!(open(&text, &secret(1)).unwrap(), networks);
            assert!(matches!(open(&text, &secret(2)), Err(BackupError::Wrong)));
        }
        let lines = seal(&secret(1), &["{}".to_owned()], &[7; NONCE]).unwrap();
        let text = format!("# home server: 2026\n# npub1xyz\nncryptsec1xyz\n# kept at: the bank\n{lines}");
        assert_eq!(open(&text, &secret(1)).unwrap(), ["{}"], "behind comments of the owner");
        assert!(
            open("# npub1xyz\nncryptsec1xyz\n# mine: all\n", &secret(1))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_changed_backup_is_refused() {
        let lines = seal(&secret(1), &["network".to_owned()], &[7; NONCE]).unwrap();
        let (head, digits) = lines.split_once('\n').unwrap();
        for at in 0..digits.trim_end().len() {
            let mut changed = digits.as_bytes().to_vec();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = format!("{head}\n{}", String::from_utf8(changed).unwrap());
            // One that is cut out of its line is missing.
            assert!(open(&changed, &secret(1)).is_err(), "{at}");
            let shorter = format!("{head}\n{}", &digits[..at]);
            assert!(open(&shorter, &secret(1)).is_err(), "{at}");
        }
        let later = lines.replace("weft.backup/1", "weft.backup/2");
        let error = open(&later, &secret(1)).unwrap_err().to_string();
        assert!(error.contains("weft.backup/2"), "{error}");
    }

    /// The format as docs/guides/keys.md has it.
    #[test]
    fn a_known_text_is_read() {
        let lines = seal(&secret(1), &["{}".to_owned()], &[0; NONCE]).unwrap();
        let known = "# weft.backup/1: the networks of this node, encrypted with its key\n#  ";
        assert!(lines.starts_with(known), "{lines}");
    }
}
