//! Transfers as text for people.

use weft_transfer::api::clean::Cleaned;
use weft_transfer::api::{
    Amount, Direction, Note, ReceiveMode, ReceiveStatus, TransferState, TransferStatus, Transfers,
};

use crate::human::{bytes, clip, columns, duration, paragraph};

/// Names of files that a line has.
const NAMES: usize = 3;
/// Notes that are listed.
const NOTES: usize = 20;

/// Text of others without what would move the cursor or turn the order of letters around.
pub(super) fn shown(text: &str) -> String {
    let hides = |c: char| matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    let replaced = |c: char| if c.is_control() || hides(c) { '?' } else { c };
    text.chars().map(replaced).collect()
}

/// A transfer that was queued or accepted.
pub(super) fn begun(one: &TransferStatus, width: usize) -> String {
    let (id, names) = (one.id.short(), names(one));
    let what = match one.direction {
        Direction::Send => {
            let why = one
                .why
                .as_deref()
                .map(|why| format!(" ({})", shown(why)))
                .unwrap_or_default();
            format!("queued: {names} {}{why}", with(one))
        }
        Direction::Receive if one.share.is_some() => {
            let why = one.why.as_deref().map(|why| format!(" ({})", shown(why)));
            let (why, into) = (why.unwrap_or_default(), shown(&one.into));
            format!("queued: {} {}, into {into}{why}", shared(one), with(one))
        }
        Direction::Receive => format!("accepted: {names} {}, into {}", with(one), shown(&one.into)),
    };
    paragraph(&format!("{what}; `weft transfers {id}` shows how far it is"), width)
}

/// A transfer that a verb has changed.
pub(super) fn changed(one: &TransferStatus, width: usize) -> String {
    let line = format!("{} ({} {}): {}", one.id.short(), names(one), with(one), doing(one));
    paragraph(&line, width)
}

/// The offers that wait.
pub(super) fn inbox(all: &Transfers, width: usize) -> String {
    let mut text = match all.transfers.is_empty() {
        true => "No offers wait.\n".to_owned(),
        false => format!("{:<8}  {:<22}  {:>10}  WHAT\n", "ID", "FROM", "SIZE"),
    };
    for one in &all.transfers {
        let size = one.progress.bytes.total.map_or_else(String::new, bytes);
        let row = format!(
            "{:<8}  {:<22}  {size:>10}  {}",
            one.id.short(),
            clip(&peer_name(one), 22),
            names(one) + if one.overwrite { " (replaces files)" } else { "" }
        );
        text += &paragraph(&row, width);
    }
    text + &why_not(&all.receive, width)
}

/// All transfers, a row for each. Where rows have no limit, the reasons are in them.
pub(super) fn list(all: &Transfers, width: usize) -> String {
    let mut text = match all.transfers.is_empty() {
        true => "No transfer is under way; `weft transfers --history` lists those that have ended.\n".to_owned(),
        false => format!("{:<8}  {:<22}  {:<10}  {:<27}  WHAT\n", "ID", "WITH", "STATE", "DONE"),
    };
    for one in &all.transfers {
        let (id, done) = (one.id.short(), progress(one));
        let (peer, state) = (clip(&with(one), 22), word(one.state));
        let row = format!("{id:<8}  {peer:<22}  {state:<10}  {done:<27}  {}", names(one));
        text += &match reason(one) {
            Some(why) if width == usize::MAX => paragraph(&format!("{row}  ({why})"), width),
            Some(why) => paragraph(&row, width) + &paragraph(&format!("          {why}"), width),
            None => paragraph(&row, width),
        };
    }
    text + &why_not(&all.receive, width)
}

/// One transfer in detail.
pub(super) fn one(one: &TransferStatus, width: usize) -> String {
    let progress = &one.progress;
    let amount = |amount: Amount, unit: &dyn Fn(u64) -> String| match amount.total {
        Some(total) => format!("{} of {}", unit(amount.done), unit(total)),
        None => format!("{} so far", unit(amount.done)),
    };
    let mut lines = vec![
        ("transfer", one.id.to_string()),
        ("peer", with(one)),
        (
            "what",
            one.names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", "),
        ),
        ("into", shown(&one.into)),
        ("state", doing(one)),
        ("entries", amount(progress.entries, &|number| number.to_string())),
        ("bytes", amount(progress.bytes, &bytes)),
        (
            "all tries",
            format!(
                "{} through connections, {} read",
                bytes(progress.moved),
                bytes(progress.read)
            ),
        ),
    ];
    lines.extend((progress.saved > 0).then(|| ("compression", format!("{} saved on the way", bytes(progress.saved)))));
    lines.extend((progress.had > 0).then(|| ("there before", progress.had.to_string())));
    columns(&lines, width) + &notes(one, width)
}

/// Who may send files here, and where they come.
pub(super) fn receive(receive: &ReceiveStatus, width: usize) -> String {
    let mode = match &receive.mode {
        ReceiveMode::Off => "off: no peer may send files here".to_owned(),
        ReceiveMode::Ask => "ask: each offer waits for `weft accept`".to_owned(),
        ReceiveMode::Members => {
            "members: those of the own networks send without a question; offers of others wait".to_owned()
        }
        ReceiveMode::Tag(tag) => format!(
            "tag:{}: members with this tag send without a question; offers of others wait",
            shown(tag)
        ),
    };
    let left = receive.for_s.map(|left| format!("; {} more", duration(left)));
    let folder = receive
        .folder
        .as_deref()
        .map_or_else(|| "none: `weft receive --to DIR` sets it".to_owned(), shown);
    let lines = [("mode", mode + &left.unwrap_or_default()), ("folder", folder)];
    columns(&lines, width) + &why_not(receive, width)
}

fn why_not(receive: &ReceiveStatus, width: usize) -> String {
    let why = receive.why_not.as_deref().map(shown);
    why.map_or_else(String::new, |why| {
        paragraph(&format!("Nothing can come at present: {why}"), width)
    })
}

/// What was removed of transfers that have ended.
pub(super) fn cleaned(cleaned: &Cleaned, width: usize) -> String {
    let parts = [
        (cleaned.transfers, "of the history"),
        (cleaned.staged, "of unfinished files"),
        (cleaned.hashes, "of hashes"),
        (cleaned.damaged, "of damaged state"),
    ];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, what)| format!("{number} {what}")).collect();
    let line = match parts.is_empty() {
        true => "nothing was left to be removed".to_owned(),
        false => format!("removed {}: {}", parts.join(", "), bytes(cleaned.bytes)),
    };
    let left = cleaned.left.iter();
    let left = left.map(|note| paragraph(&format!("  {}: {}", shown(&note.name), shown(&note.what)), width));
    paragraph(&line, width) + &left.collect::<String>()
}

/// What was left out, or came under another name.
pub(super) fn notes(one: &TransferStatus, width: usize) -> String {
    let line = |note: &Note| paragraph(&format!("  {}: {}", shown(&note.name), shown(&note.what)), width);
    let mut text: String = one.progress.notes.iter().take(NOTES).map(line).collect();
    let more = (one.progress.notes.len().saturating_sub(NOTES) as u64).saturating_add(one.progress.more_notes);
    if more > 0 {
        text += &format!("  and {more} more\n");
    }
    text
}

/// What a transfer does, in words.
pub(super) fn doing(one: &TransferStatus) -> String {
    let why = reason(one).map(|why| format!(": {why}")).unwrap_or_default();
    match (one.state, one.direction) {
        (TransferState::Queued, _) => format!("queued{why}"),
        (TransferState::Connecting, _) => format!("connecting to {}{why}", peer_name(one)),
        (TransferState::Waiting, Direction::Send) => format!(
            "waits until it is accepted there: `weft accept {}` on {}",
            one.id.short(),
            shown(&one.peer)
        ),
        (TransferState::Waiting, Direction::Receive) => format!("waits for `weft accept {}`", one.id.short()),
        (TransferState::Running, _) => running(one),
        (TransferState::Syncing, Direction::Send) => "all has arrived, and is written to the disk there".to_owned(),
        (TransferState::Syncing, Direction::Receive) => "all has arrived, and is written to the disk".to_owned(),
        (TransferState::Paused, _) => format!("paused{why}; `weft resume {}` goes on with it", one.id.short()),
        (TransferState::Done, _) => done(one),
        (TransferState::Rejected, Direction::Send) => format!("rejected by {}{why}", peer_name(one)),
        (state, _) => format!("{}{why}", word(state)),
    }
}

/// The end of one that has all, in words.
fn done(one: &TransferStatus) -> String {
    let files = match (one.progress.entries.done, one.progress.entries.total) {
        (done, Some(total)) if done < total => format!("{done} of {total} files and folders"),
        (1, _) => names(one),
        (number, _) => format!("{number} files and folders"),
    };
    let had = (one.progress.had > 0).then(|| format!(", {} of them there before", one.progress.had));
    let had = had.unwrap_or_default();
    let size = bytes(one.progress.bytes.done);
    let (done, to) = match one.direction {
        Direction::Send => ("sent", String::new()),
        Direction::Receive => ("received", format!(" into {}", shown(&one.into))),
    };
    let synced = match (one.direction, one.progress.entries.done) {
        (_, 0) => "nothing is stored",
        (Direction::Send, _) => "stored and synced there",
        (Direction::Receive, _) => "stored and synced",
    };
    format!("{done} {files}{had}, {size} {}{to}: {synced}", with(one))
}

/// How fast it goes on, and what keeps it from being faster.
fn running(one: &TransferStatus) -> String {
    let rate = one.rate.map(|rate| format!("{}/s", bytes(rate)));
    let left = one.eta_s.map(|left| format!("{} left", duration(left)));
    let path = one.path.as_deref().map(|path| format!("path {}", shown(path)));
    let held = one.held_up_by.as_deref().map(|by| format!("held up by {}", holder(by)));
    let parts = [Some(format!("running: {}", progress(one))), rate, left, held, path];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn holder(by: &str) -> String {
    match by {
        "disk-here" => "the disk here".to_owned(),
        "disk-there" => "the disk there".to_owned(),
        "path" => "the path".to_owned(),
        "cpu" => "the CPU".to_owned(),
        "limit" => "the limit".to_owned(),
        other => shown(other),
    }
}

/// The bytes that are done, and the share.
fn progress(one: &TransferStatus) -> String {
    let Amount { total, done } = one.progress.bytes;
    match total {
        Some(total) if total > 0 => {
            let share = (u128::from(done) * 100 / u128::from(total)).min(100);
            format!("{} of {}, {share} %", bytes(done), bytes(total))
        }
        Some(_) => String::new(),
        None => bytes(done),
    }
}

/// Why it is in its state, and when the next try is.
fn reason(one: &TransferStatus) -> Option<String> {
    let next = one.next_try_s.map(|next| format!("next try in {}", duration(next)));
    let parts: Vec<String> = one.why.as_deref().map(shown).into_iter().chain(next).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The direction and the peer.
fn with(one: &TransferStatus) -> String {
    match one.direction {
        Direction::Send => format!("to {}", peer_name(one)),
        Direction::Receive => format!("from {}", peer_name(one)),
    }
}

/// The peer, and the user there.
fn peer_name(one: &TransferStatus) -> String {
    let peer = shown(&one.peer);
    match &one.user {
        Some(user) => format!("{}@{peer}", shown(user)),
        None => peer,
    }
}

/// What is fetched.
fn shared(one: &TransferStatus) -> String {
    one.share.as_deref().map(shown).unwrap_or_default()
}

/// The first names.
fn names(one: &TransferStatus) -> String {
    let first: Vec<String> = one.names.iter().take(NAMES).map(|name| shown(name)).collect();
    match one.names.len().saturating_sub(NAMES) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

const fn word(state: TransferState) -> &'static str {
    match state {
        TransferState::Queued => "queued",
        TransferState::Connecting => "connecting",
        TransferState::Waiting => "waiting",
        TransferState::Running => "running",
        TransferState::Syncing => "syncing",
        TransferState::Paused => "paused",
        TransferState::Done => "done",
        TransferState::Failed => "failed",
        TransferState::Cancelled => "cancelled",
        TransferState::Rejected => "rejected",
    }
}

#[cfg(test)]
mod tests;
