//! The program at a place that stays when it is built or unpacked anew.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use super::error::{ServiceError, why};
use super::unit::{Stamp, Unit, is_plain};

/// The file of this process, also if it was replaced or removed since.
const RUNNING: &str = "/proc/self/exe";

/// The directories that a system keeps for programs.
const OF_THE_SYSTEM: [&str; 7] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
    "/nix/store",
];

/// Where the program of the service is.
#[derive(Debug)]
pub(super) enum Program {
    /// It runs from a directory of the system.
    InPlace(Unit),
    /// It is to be copied to one.
    ToCopy(Copy),
}

/// A copy to be made.
#[derive(Debug)]
pub(super) struct Copy {
    /// The file that runs.
    pub(super) from: PathBuf,
    /// The directory of the copy, which only root can change.
    directory: PathBuf,
}

/// The path of the program that runs.
pub(super) fn running() -> PathBuf {
    fs::read_link(RUNNING).unwrap_or_else(|_| PathBuf::from("weft"))
}

/// Asks an installed program whether it would start: with its configuration, and on this host.
///
/// # Errors
/// [`ServiceError::WouldNotStart`], with what the program says.
pub(super) fn would_start(program: &Path) -> Result<(), ServiceError> {
    let refused = |why: String| ServiceError::WouldNotStart {
        program: program.to_owned(),
        why,
    };
    let mut command = Command::new(program);
    let output = command
        .args(["config", "check", "--here"])
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let why = why(&output);
    Err(refused(why.strip_prefix("weft: ").unwrap_or(&why).to_owned()))
}

impl Program {
    /// Finds the program that runs. `before` is the unit of an earlier installation.
    pub(super) fn find(directory: &Path, before: Option<&Unit>) -> Result<Self, ServiceError> {
        let from = running();
        let of_the_system = OF_THE_SYSTEM.iter().any(|directory| from.starts_with(directory));
        // A file that was replaced has " (deleted)" behind its name and is not found.
        if of_the_system && check(&from).is_ok() {
            if !is_plain(&from) {
                return Err(ServiceError::OddPath(from));
            }
            let same = before.filter(|unit| unit.program == from && unit.copy == stamp(&from).ok());
            return Ok(Self::InPlace(Unit {
                copy: same.and_then(|unit| unit.copy),
                program: from,
            }));
        }
        let found = fs::canonicalize(directory).map_err(|source| ServiceError::file("used", directory, source))?;
        check(&found).map_err(|(path, why)| ServiceError::UnsafeDirectory { path, why })?;
        Ok(Self::ToCopy(Copy {
            from,
            directory: directory.to_owned(),
        }))
    }
}

impl Copy {
    /// Copies the program in place of one that may be there. At every moment there is a complete
    /// one.
    pub(super) fn make(&self) -> Result<Unit, ServiceError> {
        let program = self.directory.join("weft");
        let failed = |source| ServiceError::file("written", &program, source);
        let mut running = File::open(RUNNING).map_err(failed)?;
        write(&program, 0o755, &mut running).map_err(failed)?;
        let copy = Some(stamp(&program).map_err(failed)?);
        Ok(Unit { program, copy })
    }
}

impl Unit {
    /// Removes the copied program; false if there was none, or if another file is in its place.
    pub(super) fn remove_copy(&self) -> Result<bool, ServiceError> {
        if self.copy.is_none() || self.copy != stamp(&self.program).ok() {
            return Ok(false);
        }
        fs::remove_file(&self.program)
            .map(|()| true)
            .map_err(|source| ServiceError::file("removed", &self.program, source))
    }
}

/// Writes a new file and puts it in the place of `path`: a link there is replaced, and not
/// followed.
pub(super) fn write(path: &Path, mode: u32, from: &mut impl Read) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = path.with_file_name(name);
    let mut written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        io::copy(from, &mut file)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()
    };
    written().and_then(|()| fs::rename(&new, path)).inspect_err(|error| {
        // A file that was there before this one is another's.
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&new);
        }
    })?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// What distinguishes the regular file `path` from one that later takes its place.
fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = fs::symlink_metadata(path)?;
    if !file.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Stamp {
        len: file.len(),
        modified: (file.mtime(), file.mtime_nsec()),
    })
}

/// Refuses a path of which a part is a link, or belongs to another user than root, or can be
/// written by all. A group that may write to a directory of root's programs has root's rights
/// without this command (Debian's group `staff`).
fn check(path: &Path) -> Result<(), (PathBuf, String)> {
    let own = geteuid().as_raw();
    for part in path.ancestors() {
        let bad = |why: String| Err((part.to_owned(), why));
        let found = match fs::symlink_metadata(part) {
            Ok(found) => found,
            Err(error) => return bad(error.to_string()),
        };
        if found.is_symlink() {
            return bad("is a link".to_owned());
        }
        if found.uid() != 0 && found.uid() != own {
            return bad(format!("belongs to uid {}", found.uid()));
        }
        if found.mode() & 0o002 != 0 {
            return bad(format!("can be written by all (mode {:04o})", found.mode() & 0o7777));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_a_link_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let (path, home) = (base.path().join("weft"), base.path().join("home"));
        write(&path, 0o755, &mut &b"one"[..]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
        fs::write(&home, "a user's").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&home, &path).unwrap();
        write(&path, 0o644, &mut &b"two"[..]).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read(&home).unwrap(), b"a user's");
        // A directory is not replaced, and nothing is left beside it.
        let directory = base.path().join("directory");
        fs::create_dir(&directory).unwrap();
        write(&directory, 0o644, &mut &b"three"[..]).unwrap_err();
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_copy_is_removed_only_while_it_is_the_same_file() {
        let base = tempfile::tempdir().unwrap();
        let copy = Copy {
            from: running(),
            directory: base.path().to_owned(),
        };
        let unit = copy.make().unwrap();
        assert_eq!(
            fs::metadata(&unit.program).unwrap().len(),
            fs::metadata(RUNNING).unwrap().len()
        );
        fs::write(base.path().join("other"), "a package's").unwrap();
        let aside = base.path().join("aside");
        fs::rename(&unit.program, &aside).unwrap();
        assert!(!unit.remove_copy().unwrap(), "none there");
        fs::rename(base.path().join("other"), &unit.program).unwrap();
        assert!(!unit.remove_copy().unwrap(), "another file");
        fs::remove_file(&unit.program).unwrap();
        symlink(&aside, &unit.program).unwrap();
        assert!(!unit.remove_copy().unwrap(), "a link to the same file");
        fs::rename(&aside, &unit.program).unwrap();
        assert!(unit.remove_copy().unwrap());
        assert!(!unit.program.exists());
        let in_place = Unit { copy: None, ..unit };
        assert!(!in_place.remove_copy().unwrap());
    }

    #[test]
    fn directories_that_others_can_change_are_refused() {
        let base = tempfile::tempdir().unwrap();
        // The directory for temporary files is for all users.
        let (path, why) = check(base.path()).unwrap_err();
        assert!(
            base.path().starts_with(&path) && path != base.path(),
            "{}",
            path.display()
        );
        assert!(why.contains("by all"), "{why}");
        check(Path::new("/usr")).unwrap();
        let link = base.path().join("link");
        symlink("/usr", &link).unwrap();
        assert_eq!(check(&link).unwrap_err().1, "is a link");
        assert!(check(&base.path().join("none")).is_err());
    }
}
