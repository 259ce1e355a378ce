//! Sets the commit that the crate is built from. Never fails a build: without git the value says
//! so.

#![allow(clippy::print_stdout)] // A build script passes its results to cargo on standard output.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEFT_COMMIT");
    let commit = commit_of_checkout()
        .or_else(|| std::env::var("WEFT_COMMIT").ok())
        .filter(|commit| !commit.is_empty() && commit.bytes().all(|b| b.is_ascii_graphic()))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=WEFT_BUILD_COMMIT={commit}");
}

/// The commit, if this source is the checkout itself and not a copy inside another one.
fn commit_of_checkout() -> Option<String> {
    let root = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?)
        .join("../..")
        .canonicalize()
        .ok()?;
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    for path in ["HEAD", "refs/heads", "packed-refs"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", path])?);
        // Cargo treats a missing file as changed, at every build.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "--short=12", "--verify", "HEAD"])
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
