//! Word of offers that wait, in the desktop session of the user.

use std::env;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::queue::Incoming;
use crate::send::plain;

/// The program, found in `PATH`.
const PROGRAM: &str = "notify-send";
/// Offers that wait for their word; further ones have none.
const WAITING: usize = 20;
/// The pause between two of them.
const APART: Duration = Duration::from_secs(1);
/// How long the program may take.
const TIME: Duration = Duration::from_secs(10);
/// The pause between two looks at it.
const LOOK: Duration = Duration::from_millis(50);
/// Names that are told.
const NAMES: usize = 3;

/// What the program is told: a title and a text.
type Word = [String; 2];

/// Tells of offers; nothing without a desktop session.
#[derive(Debug)]
pub(super) struct Notifier(Option<SyncSender<Word>>);

impl Notifier {
    /// Begins, if there is a desktop session.
    pub(super) fn start() -> Self {
        if env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none_or(|address| address.is_empty()) {
            return Self(None);
        }
        let (sender, words) = sync_channel(WAITING);
        let started = thread::Builder::new().spawn(move || tell_all(&words));
        Self(started.ok().map(|_| sender))
    }

    /// Tells of an offer.
    pub(super) fn tell(&self, offer: &Incoming) {
        if let Some(words) = &self.0 {
            // With a full queue the user has more to read already.
            let _ = words.try_send(word(offer));
        }
    }
}

/// The word of an offer. The text is markup for some desktops.
fn word(offer: &Incoming) -> Word {
    let escaped = |text: &str| {
        let text = plain(text);
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    };
    let mut names: Vec<String> = offer.names.iter().take(NAMES).map(|name| escaped(name)).collect();
    names.extend((offer.names.len() > NAMES).then(|| "and more".to_owned()));
    let text = format!("{}; weft accept {}", names.join(", "), offer.id.short());
    [format!("{} offers files", plain(&offer.peer)), text]
}

fn tell_all(words: &Receiver<Word>) {
    for word in words {
        run(&word);
        thread::sleep(APART);
    }
}

/// Runs the program until its end, or until its time is over.
fn run(word: &Word) {
    let mut command = Command::new(PROGRAM);
    command.args(["--app-name=weft", "--"]).args(word);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return tracing::debug!(%error, "no word of an offer in the desktop session"),
    };
    let end = Instant::now() + TIME;
    while let Ok(None) = child.try_wait() {
        if Instant::now() >= end {
            // It has ended meanwhile, or is gone.
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        thread::sleep(LOOK);
    }
}
