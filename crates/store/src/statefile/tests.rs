use std::cell::Cell;

use super::*;

/// A disk on which one step fails, once or from then on.
struct Faulty {
    /// The steps until the one that fails.
    left: Cell<usize>,
    /// Whether all steps after it fail, too, as on a disk that is gone.
    lasting: bool,
    error: i32,
}

impl Faulty {
    fn step(&self) -> io::Result<()> {
        match self.left.get() {
            0 => {
                self.left.set(if self.lasting { 0 } else { usize::MAX });
                Err(io::Error::from_raw_os_error(self.error))
            }
            left => {
                self.left.set(left - 1);
                Ok(())
            }
        }
    }
}

impl Disk for Faulty {
    type File = File;

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        System.remove(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        System.create(path)
    }

    fn write(&self, file: &mut File, text: &[u8]) -> io::Result<()> {
        // A disk takes a part before it is full.
        System.write(file, &text[..text.len() / 2])?;
        self.step()?;
        System.write(file, &text[text.len() / 2..])
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        System.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        System.rename(from, to)
    }
}

/// The numbers of ENOSPC, EROFS, EDQUOT, EIO and EACCES.
const ERRORS: [i32; 5] = [28, 30, 122, 5, 13];

#[test]
fn a_file_is_the_old_or_the_new_one_whatever_step_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept.json");
    let mut failed = 0;
    for error in ERRORS {
        for (lasting, sync) in [(false, true), (true, true), (false, false), (true, false)] {
            for left in 0.. {
                write(&path, "old", true).unwrap();
                let disk = Faulty {
                    left: Cell::new(left),
                    lasting,
                    error,
                };
                let written = write_on(&disk, &path, "new", sync);
                let text = fs::read_to_string(&path).unwrap();
                match written {
                    Ok(()) => {
                        assert_eq!(text, "new");
                        break;
                    }
                    Err(found) => {
                        assert_eq!(
                            (text.as_str(), found.raw_os_error()),
                            ("old", Some(error)),
                            "step {left}"
                        );
                        failed += 1;
                    }
                }
                // What is left of the attempt is in the way of none.
                write(&path, "newer", true).unwrap();
                assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            }
        }
    }
    // Remove, create, write, sync and rename; without sync one less.
    assert_eq!(failed, ERRORS.len() * 2 * (5 + 4));
}
