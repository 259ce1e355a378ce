//! The rules for packets and for routes, as text and as values. Nothing here touches the system.

mod direct;
mod routes;
mod serving;
mod using;

use std::fmt::{Display, Write as _};

use weft_wire::internet::EXIT_NAMES;

pub use self::direct::{direct, own_addresses};
pub(super) use self::routes::DNS;
pub use self::routes::{GROUP, PRIORITIES, is_lan, routes};
pub use self::serving::{CLOSED, closed, closed_again, no_table, serving};
pub use self::using::using;

use super::saved::Saved;

/// The table of routes by an exit.
pub const TABLE: u32 = 30_565;
/// The number of the first rule for routes. Those of the system are 0, 32766 and 32767.
const PRIORITY: u32 = 5_200;
/// The table of nft(8) while this host uses an exit.
pub const USE: &str = "weft";
/// The table of nft(8) while this host is an exit.
pub const SERVE: &str = "weft_exit";

/// The tables of nft(8) that are this program's own.
pub const OWN: [&str; 3] = [USE, SERVE, CLOSED];

/// The port of an exit that takes queries for names.
pub(super) const NAMES: u16 = EXIT_NAMES;
/// What programs get for a packet that may not leave.
const REFUSED: &str = "counter reject with icmpx type admin-prohibited";

/// The text that removes a table, if there is one.
#[must_use]
pub fn without(table: &str) -> String {
    format!("add table inet {table}\ndelete table inet {table}\n")
}

/// The text that ends the translation of addresses in the table of a host that uses an exit, and leaves all that keeps
/// packets in.
#[must_use]
pub fn translate_nothing() -> String {
    let mut text = String::new();
    for chain in ["names", "names_of_others", "postrouting"] {
        let _ = writeln!(text, "add chain inet {USE} {chain}\nflush chain inet {USE} {chain}");
    }
    text
}

/// The text after which packets under an address of the mesh are lost instead of refused, in the table of a host that
/// uses an exit.
#[must_use]
pub fn refuse_nothing() -> String {
    format!("flush chain inet {USE} output\n")
}

fn begin(table: &str, saved: &Saved) -> String {
    let mut text = format!("{}table inet {table} {{\n", without(table));
    for (number, line) in saved.lines().enumerate() {
        let _ = writeln!(text, "  set was_{number} {{ typeof meta mark; comment \"{line}\"; }}");
    }
    text
}

/// The name of an IP version in rules.
pub(super) const fn family(ipv6: bool) -> &'static str {
    if ipv6 { "ip6" } else { "ip" }
}

const fn version(ipv6: bool) -> u8 {
    if ipv6 { 6 } else { 4 }
}

/// The elements of a set, if it has any.
fn elements(items: impl IntoIterator<Item = impl Display>) -> String {
    let items = list(items);
    match items.is_empty() {
        true => items,
        false => format!(" elements = {{ {items} }};"),
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    list(names.map(|name| format!("\"{name}\"")))
}

fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}
