//! `weft key`: the node's key under a passphrase, as a backup or to move it (NIP-49).

mod passphrase;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use weft_noise::Identity;
use weft_os::process::forbid_core_dumps;
use weft_os::random::random_bytes;
use weft_store::backup;
use weft_store::keyfile::encrypted::{self, EncryptedKeyError};
use weft_store::keyfile::{self, KeyFileError};
use weft_store::network_files::{self, NetworkFiles};
use weft_store::state::{StateDir, StatePaths};

use self::passphrase::Source;
use crate::documents::OfCommand;
use crate::failure::Failure;
use crate::human;
use crate::identity::config;
use crate::output::Out;

/// The longest file with an encrypted key and networks, in bytes.
const MAX_TEXT: u64 = 64 << 20;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Write the key, encrypted with a passphrase (ncryptsec1..., NIP-49), and the networks of this node
    Export {
        /// The new file, which only its owner may read [default: standard output]
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
        /// Read the passphrase from the first line of this file; - is standard input [default: ask]
        #[arg(long, value_name = "PATH")]
        passphrase_file: Option<PathBuf>,
        /// Print the document weft.key-export/1
        #[arg(long)]
        json: bool,
    },
    /// Take over a key that `weft key export` has written, and its networks
    Import {
        /// The file [default: standard input]
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
        /// Read the passphrase from the first line of this file; - is standard input [default: ask]
        #[arg(long, value_name = "PATH")]
        passphrase_file: Option<PathBuf>,
        /// Replace another key that is there, and keep it beside the new one
        #[arg(long)]
        force: bool,
        /// Print the document weft.key-import/1
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(paths: StatePaths, action: Action) -> Result<(), Failure> {
    // Called before a secret is in memory.
    forbid_core_dumps()?;
    match action {
        Action::Export {
            file,
            passphrase_file,
            json,
        } => export(&paths, file.as_deref(), &Source::new(passphrase_file), json),
        Action::Import {
            file,
            passphrase_file,
            force,
            json,
        } => import(
            paths,
            file.as_deref().filter(|file| *file != Path::new("-")),
            &Source::new(passphrase_file),
            (force, json),
        ),
    }
}

fn export(paths: &StatePaths, file: Option<&Path>, source: &Source, json: bool) -> Result<(), Failure> {
    let identity = keyfile::load(&paths.key(&config(paths)?))?;
    // Refused before the user has typed the passphrase twice.
    if let Some(path) = file.filter(|path| path.exists()) {
        return Err(unusable("written", path)(io::ErrorKind::AlreadyExists.into()));
    }
    let passphrase = source.read_new()?;
    let (mut random, mut nonce) = ([0; 40], [0; 24]);
    random_bytes(&mut random).map_err(KeyFileError::Random)?;
    random_bytes(&mut nonce).map_err(KeyFileError::Random)?;
    let text = encrypted::encrypt(identity.secret(), &passphrase, &random)?;
    let (networks, left_out) = NetworkFiles::texts(paths.directory(), &identity.public());
    for path in &left_out {
        let path = path.display();
        let _ = writeln!(
            io::stderr(),
            "a network is left out, because its file cannot be used: {path}"
        );
    }
    let sealed = match networks.is_empty() {
        true => String::new(),
        false => backup::seal(identity.secret(), &networks, &nonce)?,
    };
    let npub = identity.public();
    let text = format!("# {npub}\n{text}\n{sealed}");
    if let Some(path) = file {
        write(path, &text)?;
    }
    if json {
        return Out::new().document(&Exported {
            npub: npub.to_string(),
            file: file.map(shown),
            text: file.is_none().then_some(text),
            networks: networks.len(),
            left_out: left_out.iter().map(|path| shown(path)).collect(),
        });
    }
    let Some(path) = file else {
        return Out::new().text(&text);
    };
    Out::new().text(&format!(
        "{} written, encrypted{}: {}\nWithout the passphrase the file is of no use, and with it this node can be made again.\n",
        npub,
        match networks.len() {
            0 => String::new(),
            n => format!(", with {}", human::count(n, "network")),
        },
        path.display()
    ))
}

/// Writes a file that its owner alone may read, and leaves no part of it.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = written.and_then(|mut file| {
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.inspect_err(|_| drop(fs::remove_file(path)))
    });
    written.map_err(unusable("written", path))
}

fn import(paths: StatePaths, file: Option<&Path>, source: &Source, (force, json): (bool, bool)) -> Result<(), Failure> {
    if file.is_none() && source.is_standard_input() {
        return Err(Failure::OneInput);
    }
    let path = paths.key(&config(&paths)?);
    let directory = paths.directory().to_owned();
    // A running daemon would go on with the old key.
    let _state = StateDir::open(paths)?;
    let (from, text) = match file {
        Some(path) => (path.display().to_string(), File::open(path).and_then(read)),
        None => ("standard input".to_owned(), read(io::stdin())),
    };
    let text = text.map_err(unusable("read", file.unwrap_or(Path::new("standard input"))))?;
    let problem = |problem| Failure::EncryptedFile {
        from: from.clone(),
        problem,
    };
    let line = encrypted_line(&text).map_err(problem)?;
    let secret = encrypted::decrypt(line, &source.read()?).map_err(problem)?;
    let identity = Identity::new(secret);
    let npub = identity.public();
    let (mut imported, mut former) = (true, None);
    let done = match keyfile::create(&path, &identity) {
        Ok(()) => format!("{npub} imported\n"),
        Err(KeyFileError::Exists(_)) => {
            let present = keyfile::load(&path)?.public();
            if present == npub {
                imported = false;
                format!("{npub} is the key already\n")
            } else if force {
                let kept = keyfile::replace_and_keep(&path, &identity)?;
                let mut text = format!("{npub} imported\n{present} kept: {}\n", kept.display());
                // They are networks of the other key.
                let suffix = format!(".old-{}", &present.to_string()[..16]);
                let networks = network_files::set_aside(&directory, &suffix);
                for aside in networks.map_err(|error| Failure::NetworkOfKey(error.into()))? {
                    text.push_str(&format!("a network of that key kept: {}\n", aside.display()));
                }
                former = Some(kept);
                text
            } else {
                let npub = present.to_string();
                return Err(Failure::OtherKey { path, npub });
            }
        }
        Err(error) => return Err(error.into()),
    };
    if !json {
        Out::new().text(&done)?;
    }
    let networks = restore_networks((&directory, &text), &identity, json)?;
    if !json {
        return Ok(());
    }
    Out::new().document(&Imported {
        npub: npub.to_string(),
        imported,
        kept: former.as_deref().map(shown),
        networks,
    })
}

/// The document of `weft key export`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Exported {
    /// The public key.
    npub: String,
    /// The file that was written; `None` without `--file`.
    file: Option<String>,
    /// Without `--file`, what it would have: the encrypted key and the networks.
    text: Option<String>,
    /// The number of networks in it.
    networks: usize,
    /// The files of networks that cannot be used, and are not in it.
    left_out: Vec<String>,
}

impl OfCommand for Exported {
    const NAME: &'static str = "weft.key-export/1";
}

/// The document of `weft key import`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Imported {
    /// The public key.
    npub: String,
    /// False if it was the key of this node already.
    imported: bool,
    /// The file of the key that it replaces.
    kept: Option<String>,
    /// The networks that came with it.
    networks: Vec<RestoredNetwork>,
}

impl OfCommand for Imported {
    const NAME: &'static str = "weft.key-import/1";
}

/// A network that came with a key.
#[derive(Serialize, JsonSchema)]
struct RestoredNetwork {
    /// Its label, or its identifier if it has none.
    network: String,
    /// False if it was there already.
    restored: bool,
}

/// Writes the networks that are in the text of a key, and says which, unless a document does. Returns all of them.
fn restore_networks(
    (directory, text): (&Path, &str),
    identity: &Identity,
    json: bool,
) -> Result<Vec<RestoredNetwork>, Failure> {
    let mut networks = Vec::new();
    for text in backup::open(text, identity.secret())? {
        let restored = NetworkFiles::restore(directory, &identity.public(), &text);
        let (network, written) = restored.map_err(Failure::NetworkOfKey)?;
        let name = network
            .label()
            .map_or_else(|| network.id().to_string(), ToString::to_string);
        let what = if written { "restored" } else { "is there already" };
        if !json {
            Out::new().text(&format!("network {name} {what}\n"))?;
        }
        networks.push(RestoredNetwork {
            network: name,
            restored: written,
        });
    }
    Ok(networks)
}

/// Returns a path as text for a document, with a replacement character for bytes that are not UTF-8.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn unusable(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure + use<> {
    let path = path.to_owned();
    move |source| Failure::KeyText { what, path, source }
}

fn read(input: impl io::Read) -> io::Result<String> {
    let mut text = String::new();
    input.take(MAX_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// The only line that is neither empty nor a comment.
fn encrypted_line(text: &str) -> Result<&str, EncryptedKeyError> {
    let mut lines = text.lines().map(str::trim);
    let mut lines = lines.by_ref().filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (Some(line), None) => Ok(line),
        _ => Err(EncryptedKeyError::Text),
    }
}
