//! The file on the disk: taken and put back in single steps, each of which a crash may follow.
//!
//! Three names of one directory: the file, its former content `resolv.conf.before-weft`, and
//! `resolv.conf.weft-new`, which exists only for moments. The new text is written under the third name
//! and exchanged with the file; what comes out becomes the former content. So the former file is never
//! copied: its bytes, mode, owner and attributes, or its link, are those that come back.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use weft_os::file::exchange;
use weft_os::file::with_suffix;
use weft_os::process::host_domain;

use super::{compose, is_ours, without_ours};
use crate::dns::resolved;
use crate::dns::search::Search;

/// The most bytes that are read of a file.
const MAX_LEN: u64 = 64 << 10;

/// How often the file is written again because another program replaced it in the same moment.
const TRIES: usize = 3;

/// A file in the form of resolv.conf(5) that this node may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvConf {
    path: PathBuf,
    former: PathBuf,
    new: PathBuf,
}

/// The reason why the file was not replaced. Its text is half a line for the user.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The system has no such file, or a link that leads nowhere.
    #[error("{0} does not exist")]
    Missing(PathBuf),
    /// systemd-resolved manages the file.
    #[error("{0} belongs to systemd-resolved; start weft again to set names up there")]
    Resolved(PathBuf),
    /// Another program replaces the file again and again.
    #[error("another program replaces {0} at the same time")]
    Contended(PathBuf),
    /// The system refused.
    #[error("{path} cannot be replaced: {why}{advice}")]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
        /// What to do about it.
        advice: &'static str,
    },
}

impl ResolvConf {
    /// The file `path`. Nothing is read yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            former: with_suffix(path, ".before-weft"),
            new: with_suffix(path, ".weft-new"),
        }
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of its former content while this node's is in place.
    #[must_use]
    pub fn former(&self) -> &Path {
        &self.former
    }

    /// True if the file is a link to one of systemd-resolved, or names its address.
    #[must_use]
    pub fn is_of_resolved(&self) -> bool {
        let leads_there = fs::read_link(&self.path).is_ok_and(|target| {
            let target = target.to_string_lossy();
            target.contains("run/systemd/resolve/")
        });
        leads_there || read(&self.path).is_ok_and(|text| resolved::leads_to_resolved(&text, ""))
    }

    /// Puts this node's text in the place of the file, and returns the former text. Does nothing if it
    /// is there already. A text that another program wrote meanwhile becomes the former one.
    ///
    /// # Errors
    /// [`TakeError`]; the file is then as it was.
    pub fn take(&self, search: &Search) -> Result<String, TakeError> {
        self.settle().map_err(|why| self.refused(why))?;
        if self.is_of_resolved() {
            self.restore().map_err(|why| self.refused(why))?;
            return Err(TakeError::Resolved(self.path.clone()));
        }
        let domain = host_domain();
        for _ in 0..TRIES {
            let present = match read(&self.path) {
                Ok(text) => text,
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(TakeError::Missing(self.path.clone())),
                Err(error) => return Err(self.refused(error)),
            };
            let former = self.former_of(&present).map_err(|why| self.refused(why))?;
            let ours = compose(&former, domain.as_deref(), search);
            if present == ours {
                return Ok(former);
            }
            let replaced = self.write_new(&ours).and_then(|()| exchange(&self.new, &self.path));
            if let Err(why) = replaced {
                let _ = fs::remove_file(&self.new);
                return Err(self.refused(why));
            }
            let out = read(&self.new).unwrap_or_default();
            self.settle().map_err(|why| self.refused(why))?;
            if out == present {
                return Ok(former);
            }
        }
        Err(TakeError::Contended(self.path.clone()))
    }

    /// Puts the former file back, if this node's text is in its place. A file that another program
    /// wrote meanwhile stays. Also mends what a crash left.
    ///
    /// # Errors
    /// The error of the system.
    pub fn restore(&self) -> io::Result<()> {
        self.settle()?;
        let has_former = exists(&self.former);
        let present = match read(&self.path) {
            Ok(text) => text,
            // Another program has removed the file, or put a link there.
            Err(error) if error.kind() == ErrorKind::NotFound && !exists(&self.path) && has_former => {
                return fs::rename(&self.former, &self.path);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        if !is_ours(&present) {
            return if has_former {
                fs::remove_file(&self.former)
            } else {
                Ok(())
            };
        }
        if has_former {
            return fs::rename(&self.former, &self.path);
        }
        self.write_new(&without_ours(&present))?;
        fs::rename(&self.new, &self.path)
    }

    /// Completes an exchange: what came out of it is the former file, unless it is a text of this
    /// node.
    fn settle(&self) -> io::Result<()> {
        if !exists(&self.new) {
            return Ok(());
        }
        let is_link = fs::symlink_metadata(&self.new)?.is_symlink();
        if !is_link && is_ours(&read(&self.new)?) {
            fs::remove_file(&self.new)
        } else {
            fs::rename(&self.new, &self.former)
        }
    }

    /// The former text, if `present` is the text of the file.
    fn former_of(&self, present: &str) -> io::Result<String> {
        if !is_ours(present) {
            return Ok(present.to_owned());
        }
        match read(&self.former) {
            Ok(text) => Ok(text),
            // A link whose target another program has removed.
            Err(error) if error.kind() == ErrorKind::NotFound && exists(&self.former) => Ok(String::new()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(without_ours(present)),
            Err(error) => Err(error),
        }
    }

    fn write_new(&self, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&self.new)?;
        let written = file
            .write_all(text.as_bytes())
            // All users read it, whatever the umask.
            .and_then(|()| file.set_permissions(Permissions::from_mode(0o644)))
            .and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&self.new);
        }
        written
    }

    fn refused(&self, why: io::Error) -> TakeError {
        let advice = match why.kind() {
            ErrorKind::ReadOnlyFilesystem => " (if weft is a service, `weft service install` renews its unit)",
            ErrorKind::PermissionDenied => " (only root's daemon can)",
            ErrorKind::ResourceBusy => " (it is a mount of its own, as in a container)",
            _ => "",
        };
        TakeError::System {
            path: self.path.clone(),
            why,
            advice,
        }
    }
}

/// True for a link that leads nowhere as well.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    const FORMER: &str = "# by DHCP\nnameserver 192.0.2.53\n";

    struct Etc {
        directory: tempfile::TempDir,
        file: ResolvConf,
    }

    fn etc() -> Etc {
        let directory = tempfile::tempdir().unwrap();
        let file = ResolvConf::new(&directory.path().join("resolv.conf"));
        Etc { directory, file }
    }

    impl Etc {
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.directory.path()).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }

        fn text(&self) -> String {
            fs::read_to_string(self.file.path()).unwrap()
        }
    }

    #[test]
    fn the_same_file_comes_back() {
        let etc = etc();
        fs::write(etc.file.path(), FORMER).unwrap();
        fs::set_permissions(etc.file.path(), Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(etc.file.path()).unwrap();
        let search = Search::new(["home"]);
        assert_eq!(etc.file.take(&search).unwrap(), FORMER);
        assert!(etc.text().contains("nameserver 127.0.0.153\n"));
        assert!(etc.text().contains("search ") && etc.text().contains("home.weft"));
        assert_eq!(fs::metadata(etc.file.path()).unwrap().mode() & 0o777, 0o644);
        // Nothing is written again, until the networks change.
        let ours = fs::metadata(etc.file.path()).unwrap().ino();
        assert_eq!(etc.file.take(&search).unwrap(), FORMER);
        assert_eq!(fs::metadata(etc.file.path()).unwrap().ino(), ours);
        assert_eq!(etc.file.take(&Search::default()).unwrap(), FORMER);
        assert!(!etc.text().contains("home.weft"));
        assert_eq!(etc.names(), ["resolv.conf", "resolv.conf.before-weft"]);
        etc.file.restore().unwrap();
        let after = fs::metadata(etc.file.path()).unwrap();
        assert_eq!(
            (after.ino(), after.mode(), after.mtime_nsec()),
            (before.ino(), before.mode(), before.mtime_nsec())
        );
        assert_eq!(
            (etc.text(), etc.names()),
            (FORMER.to_owned(), vec!["resolv.conf".to_owned()])
        );
        etc.file.restore().unwrap();
        assert_eq!(etc.text(), FORMER);
    }

    #[test]
    fn a_link_comes_back_as_a_link() {
        let etc = etc();
        let target = etc.directory.path().join("managed");
        fs::write(&target, FORMER).unwrap();
        symlink("managed", etc.file.path()).unwrap();
        assert_eq!(etc.file.take(&Search::default()).unwrap(), FORMER);
        // Its owner goes on writing to the target.
        fs::write(&target, "nameserver 192.0.2.99\n").unwrap();
        assert_eq!(etc.file.take(&Search::default()).unwrap(), "nameserver 192.0.2.99\n");
        assert!(etc.text().contains("192.0.2.99"));
        fs::remove_file(&target).unwrap();
        assert_eq!(etc.file.take(&Search::default()).unwrap(), "");
        etc.file.restore().unwrap();
        assert_eq!(fs::read_link(etc.file.path()).unwrap(), Path::new("managed"));
        assert!(matches!(etc.file.take(&Search::default()), Err(TakeError::Missing(_))));
    }

    /// As DHCP clients and NetworkManager do, by a new file or in place.
    #[test]
    fn a_file_that_others_write_becomes_the_former_one() {
        let etc = etc();
        fs::write(etc.file.path(), FORMER).unwrap();
        etc.file.take(&Search::default()).unwrap();
        for (round, in_place) in [(1, false), (2, true)] {
            let theirs = format!("nameserver 192.0.2.{round}\n");
            if in_place {
                fs::write(etc.file.path(), &theirs).unwrap();
            } else {
                let new = etc.directory.path().join("theirs");
                fs::write(&new, &theirs).unwrap();
                fs::rename(new, etc.file.path()).unwrap();
            }
            assert_eq!(etc.file.take(&Search::default()).unwrap(), theirs);
            assert!(is_ours(&etc.text()) && etc.text().contains(&theirs));
        }
        etc.file.restore().unwrap();
        assert_eq!(etc.text(), "nameserver 192.0.2.2\n");
        // And what they write last stays, if this node ends before it notices.
        etc.file.take(&Search::default()).unwrap();
        fs::write(etc.file.path(), FORMER).unwrap();
        etc.file.restore().unwrap();
        assert_eq!((etc.text(), etc.names().len()), (FORMER.to_owned(), 1));
    }

    #[test]
    fn a_crash_at_any_step_is_mended() {
        let search = Search::default();
        let ours = compose(FORMER, None, &search);
        // The three files at the moment of the crash: present, former, new.
        for (present, former, new) in [
            (FORMER, None, Some(&*ours)),
            (&ours, None, Some(FORMER)),
            (&ours, Some(FORMER), None),
            (&ours, Some(FORMER), Some(&*ours)),
            (&ours, Some("nameserver 192.0.2.1\n"), Some(FORMER)),
            // The former file was removed by another program.
            (&ours, None, None),
        ] {
            let etc = etc();
            fs::write(etc.file.path(), present).unwrap();
            for (path, text) in [(&etc.file.former, former), (&etc.file.new, new)] {
                if let Some(text) = text {
                    fs::write(path, text).unwrap();
                }
            }
            etc.file.restore().unwrap();
            assert_eq!(
                (etc.text(), etc.names().len()),
                (FORMER.to_owned(), 1),
                "{former:?} {new:?}"
            );
        }
    }

    #[test]
    fn a_file_that_was_removed_meanwhile_comes_back() {
        let etc = etc();
        fs::write(etc.file.path(), FORMER).unwrap();
        etc.file.take(&Search::default()).unwrap();
        fs::remove_file(etc.file.path()).unwrap();
        assert!(matches!(etc.file.take(&Search::default()), Err(TakeError::Missing(_))));
        etc.file.restore().unwrap();
        assert_eq!((etc.text(), etc.names().len()), (FORMER.to_owned(), 1));
    }

    #[test]
    fn the_file_of_systemd_resolved_is_left_alone() {
        let etc = etc();
        symlink("../run/systemd/resolve/stub-resolv.conf", etc.file.path()).unwrap();
        assert!(matches!(etc.file.take(&Search::default()), Err(TakeError::Resolved(_))));
        fs::remove_file(etc.file.path()).unwrap();
        fs::write(etc.file.path(), "nameserver 127.0.0.53\n").unwrap();
        assert!(etc.file.is_of_resolved());
        assert!(matches!(etc.file.take(&Search::default()), Err(TakeError::Resolved(_))));
        assert_eq!(etc.names(), ["resolv.conf"]);
    }
}
