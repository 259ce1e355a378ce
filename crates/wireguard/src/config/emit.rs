//! The text of a file.

use std::fmt::{self, Display, Write};

use zeroize::Zeroizing;

use super::{File, Interface, Peer, Table};

/// Returns the text of a file.
pub(super) fn text(file: &File) -> Zeroizing<String> {
    // A string that grows leaves copies of its secrets behind, so that its length is computed first.
    let mut length = Length(0);
    // Neither a counter nor a string ever fails.
    let _ = emit(file, &mut length);
    let mut text = Zeroizing::new(String::with_capacity(length.0));
    let _ = emit(file, &mut *text);
    text
}

/// Counts bytes.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

fn emit(file: &File, out: &mut impl Write) -> fmt::Result {
    interface(&file.interface, out)?;
    file.peers.iter().try_for_each(|one| peer(one, out))
}

fn interface(interface: &Interface, out: &mut impl Write) -> fmt::Result {
    out.write_str("[Interface]\n")?;
    pair(out, "PrivateKey", &interface.private_key.to_text().as_str())?;
    if let Some(port) = interface.listen_port {
        pair(out, "ListenPort", &port)?;
    }
    if let Some(mark) = interface.mark {
        pair(out, "FwMark", &format_args!("{mark:#x}"))?;
    }
    let addresses = interface.addresses.iter();
    list(
        out,
        "Address",
        addresses.map(|(address, len)| format!("{address}/{len}")),
    )?;
    let dns = interface.dns.iter().map(ToString::to_string);
    list(out, "DNS", dns.chain(interface.search.iter().cloned()))?;
    if let Some(mtu) = interface.mtu {
        pair(out, "MTU", &mtu)?;
    }
    match interface.table {
        Table::Auto => Ok(()),
        Table::Off => pair(out, "Table", &"off"),
        Table::Number(number) => pair(out, "Table", &number),
    }
}

fn peer(peer: &Peer, out: &mut impl Write) -> fmt::Result {
    out.write_str("\n[Peer]\n")?;
    pair(out, "PublicKey", &peer.public_key)?;
    if let Some(key) = &peer.preshared_key {
        pair(out, "PresharedKey", &key.to_text().as_str())?;
    }
    list(out, "AllowedIPs", &peer.allowed_ips)?;
    if let Some(endpoint) = &peer.endpoint {
        pair(out, "Endpoint", endpoint)?;
    }
    if let Some(seconds) = peer.keepalive {
        pair(out, "PersistentKeepalive", &seconds)?;
    }
    Ok(())
}

/// Writes a key and its value.
fn pair(out: &mut impl Write, key: &str, value: &dyn Display) -> fmt::Result {
    writeln!(out, "{key} = {value}")
}

/// Writes a key and its list, or nothing if the list is empty.
fn list(out: &mut impl Write, key: &str, items: impl IntoIterator<Item: Display>) -> fmt::Result {
    let mut items = items.into_iter();
    let Some(first) = items.next() else { return Ok(()) };
    write!(out, "{key} = {first}")?;
    items.try_for_each(|item| write!(out, ", {item}"))?;
    out.write_str("\n")
}
