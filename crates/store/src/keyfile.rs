//! The secret key on disk: one text line, mode 0600.
//!
//! The file contains a comment with the `npub`, then the `nsec`. Empty lines and lines that begin
//! with `#` are skipped; 64 hexadecimal digits are accepted in place of an `nsec`. Buffers that
//! held a secret are wiped.

pub mod encrypted;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use weft_noise::{Identity, KeyError, SecretKey};
use weft_os::process::effective_uid;
use weft_os::random::{SystemRng, random_bytes};
use zeroize::Zeroizing;

/// The longest key file or import, in bytes.
pub const MAX_LEN: usize = 4096;

/// Generates an identity from the system's random numbers.
///
/// # Errors
/// [`KeyFileError::Random`] on systems without random numbers.
pub fn generate() -> Result<Identity, KeyFileError> {
    random_bytes(&mut [0; 32]).map_err(KeyFileError::Random)?;
    Ok(Identity::new(SecretKey::generate(&mut SystemRng)))
}

/// Writes `identity` to the new file `path` and syncs it to the disk.
///
/// # Errors
/// [`KeyFileError::Exists`] if `path` exists; the existing file stays unchanged.
pub fn create(path: &Path, identity: &Identity) -> Result<(), KeyFileError> {
    match write_new(path, identity) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(KeyFileError::Exists(path.to_owned()));
        }
        Err(source) => return Err(unwritable(path, source)),
    }
    sync_parent(path).map_err(|source| unwritable(path, source))
}

/// Writes `identity` to `path` in place of the present key, which is lost. At every moment there is
/// one complete key.
///
/// # Errors
/// [`KeyFileError::Unwritable`]; the old key then stays.
pub fn replace(path: &Path, identity: &Identity) -> Result<(), KeyFileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = path.with_file_name(name);
    let replaced = write_new(&new, identity)
        .and_then(|()| fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new))))
        .and_then(|()| sync_parent(path));
    replaced.map_err(|source| unwritable(path, source))
}

/// As [`replace`], but keeps the present key beside it: as `FILE.old-` and the beginning of its npub.
/// Returns that path.
///
/// # Errors
/// [`KeyFileError`]; the old key then stays where it is.
pub fn replace_and_keep(path: &Path, identity: &Identity) -> Result<PathBuf, KeyFileError> {
    let npub = load(path)?.public().to_string();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".old-{}", npub.get(..16).unwrap_or(&npub)));
    let kept = path.with_file_name(name);
    // A second name, so that at no moment the key is nowhere. One that was kept before is the same key.
    match fs::hard_link(path, &kept) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(unwritable(&kept, error)),
        _ => {}
    }
    replace(path, identity)?;
    Ok(kept)
}

/// Reads the identity in `path`.
///
/// # Errors
/// One variant for each possible fault of the file; the text says how to correct it.
pub fn load(path: &Path) -> Result<Identity, KeyFileError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing(path.to_owned()),
        _ => KeyFileError::Unreadable {
            path: path.to_owned(),
            source,
        },
    };
    // Checked before the open, because the open of a pipe would wait for a writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(KeyFileError::NotAFile(path.to_owned()));
    }
    let file = File::open(path).map_err(failed)?;
    check_access(path, &file.metadata().map_err(failed)?)?;
    let secret = read_secret(file).map_err(|problem| KeyFileError::Content {
        path: path.to_owned(),
        problem,
    })?;
    Ok(Identity::new(secret))
}

/// Reads a secret key from an open file, a pipe or a terminal; from a terminal, up to its first
/// line.
///
/// # Errors
/// [`BadSecret`]
pub fn read_secret(mut input: impl Read) -> Result<SecretKey, BadSecret> {
    // Allocated at full size, because a buffer that grows leaves copies in memory.
    let mut bytes = Zeroizing::new(vec![0; MAX_LEN + 1]);
    let mut len = 0;
    while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BadSecret::Io(error)),
        }
    }
    if len > MAX_LEN {
        return Err(BadSecret::TooLong);
    }
    let bytes = bytes.get(..len).unwrap_or_default();
    let text = std::str::from_utf8(bytes).map_err(|_| BadSecret::NotText)?;
    let mut keys = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let key = keys.next().ok_or(BadSecret::Empty)?;
    if keys.next().is_some() {
        return Err(BadSecret::SeveralLines);
    }
    weft_noise::parse_secret(key).map_err(BadSecret::Key)
}

/// The reason why a key file is not used. Its text is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file does not exist.
    #[error("there is no key: {}; make one with `weft identity new`", .0.display())]
    Missing(PathBuf),
    /// A key exists already.
    #[error("there is a key already: {}; --force replaces it, and the old one is lost", .0.display())]
    Exists(PathBuf),
    /// The file cannot be opened or read.
    #[error("the key cannot be read ({source}): {}; run as root (sudo), or as the user that it belongs to", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("the key cannot be written ({source}): {}; check its directory", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The path is a directory, a pipe or a device.
    #[error("the key is no regular file: {}; give the path of the key file", .0.display())]
    NotAFile(PathBuf),
    /// The file belongs to another user.
    #[error("the key belongs to another user (uid {owner}): {path}; run as that user, or chown {own} {path}", path = .path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        own: u32,
    },
    /// Other users may read, write or execute it.
    #[error("the key's mode is {mode:04o}, others may use it: {path}; chmod 600 {path}", path = .path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Its content is not a secret key.
    #[error("{problem}: {}; put the nsec into it, or move it away and run `weft identity new`", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: BadSecret,
    },
    /// The system has no random numbers.
    #[error("no random numbers ({0}); no key can be made on this system")]
    Random(io::Error),
}

/// The reason why an input is not a secret key. The texts never show any of it.
#[derive(Debug, thiserror::Error)]
pub enum BadSecret {
    /// The input cannot be read.
    #[error("the key cannot be read ({0})")]
    Io(io::Error),
    /// The input has only comments.
    #[error("the key file is empty")]
    Empty,
    /// The input has more than [`MAX_LEN`] bytes.
    #[error("longer than a key file can be")]
    TooLong,
    /// The input has bytes that are not UTF-8.
    #[error("not a text")]
    NotText,
    /// There is a second line that is not a comment.
    #[error("more than one line with a key")]
    SeveralLines,
    /// The line is not a secret key.
    #[error(transparent)]
    Key(KeyError),
}

fn check_access(path: &Path, metadata: &fs::Metadata) -> Result<(), KeyFileError> {
    let own = effective_uid();
    if metadata.uid() != own {
        return Err(KeyFileError::Owner {
            path: path.to_owned(),
            owner: metadata.uid(),
            own,
        });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & !0o600 != 0 {
        return Err(KeyFileError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

/// Creates the file `path`, which must not exist; removes it on failure.
fn write_new(path: &Path, identity: &Identity) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let nsec = identity.secret().to_nsec();
    writeln!(file, "# {}", identity.public())
        .and_then(|()| file.write_all(nsec.as_bytes()))
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .inspect_err(|_| drop(fs::remove_file(path)))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn unwritable(path: &Path, source: io::Error) -> KeyFileError {
    KeyFileError::Unwritable {
        path: path.to_owned(),
        source,
    }
}
