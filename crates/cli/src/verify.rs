//! `weft verify`: words that are the same on both screens if both nodes mean the same two keys.

use bip39::Language;
use schemars::JsonSchema;
use serde::Serialize;
use weft_config::peer::NodeRef;
use weft_control::status::{Peers, PublicPeers, PublicStatus, Standing, Status};
use weft_control::{ControlCommand, Refusal, Visible};
use weft_noise::PublicKey;
use weft_store::state::StatePaths;

use crate::documents::OfCommand;
use crate::failure::Failure;
use crate::human;
use crate::output::Out;

/// The document of `weft verify`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Words<'a> {
    /// The public key of this node.
    own: String,
    /// The public key of the peer.
    npub: String,
    /// Its name on this node.
    name: Option<&'a str>,
    /// The words, in order.
    words: [&'static str; WORDS],
    /// Whether a node with this key is connected now.
    connected: bool,
}

impl OfCommand for Words<'_> {
    const NAME: &'static str = "weft.verify/1";
}

/// Words, of 11 bits each. docs/decisions/0041-words-of-keys.md says why so many.
const WORDS: usize = 8;
/// The cost of scrypt, as log2 N: 16 MiB of memory.
const LOG_N: u8 = 14;
const CONTEXT: &[u8] = b"weft verify 1";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer: its name, NAME.fips, NAME.NETWORK.weft, npub or address
    #[arg(value_parser = NodeRef::of_node)]
    peer: NodeRef,
    /// Print the document weft.verify/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let call = paths.control();
    let own = match weft_control::call_visible(&call, &ControlCommand::Status {})? {
        Visible::Full::<Status, PublicStatus>(status) => status.node.npub,
        Visible::Public(status) => status.node.npub,
    };
    let wanted = ControlCommand::Peers {
        peer: Some(args.peer.clone()),
    };
    let found = match weft_control::call_visible(&call, &wanted)? {
        Visible::Full::<Peers, PublicPeers>(peers) => {
            let first = peers.peers.into_iter().next();
            first.map(|peer| (peer.npub, peer.name, peer.standing))
        }
        Visible::Public(peers) => {
            let first = peers.peers.into_iter().next();
            first.map(|peer| (peer.npub, peer.name, peer.standing))
        }
    };
    let unknown = || Failure::Control(Refusal::unknown_peer(&args.peer).into());
    let (npub, name, standing) = found.ok_or_else(unknown)?;
    let key = |npub: &str| {
        npub.parse::<PublicKey>()
            .map_err(|error| Failure::Usage(error.to_string()))
    };
    show(args, (&key(&own)?, &key(&npub)?), name.as_deref(), standing)
}

fn show(
    args: &Args,
    (own, peer): (&PublicKey, &PublicKey),
    name: Option<&str>,
    standing: Standing,
) -> Result<(), Failure> {
    let words = words(own, peer)?;
    let connected = matches!(standing, Standing::Connected | Standing::Active);
    if args.json {
        return Out::new().document(&Words {
            own: own.to_string(),
            npub: peer.to_string(),
            name,
            words,
            connected,
        });
    }
    let label = human::plain(&human::name(name, &peer.to_string()));
    let now = match connected {
        true => format!("a node with this key is connected ({})", standing.name()),
        false => format!("no node with this key is connected ({})", standing.name()),
    };
    let lines = [
        ("peer", label.clone()),
        ("npub", peer.to_string()),
        ("now", now),
        ("words", words.join(" ")),
        ("", String::new()),
    ];
    let advice = format!(
        "`weft verify {own}` on {label} shows the same words if both machines mean the same two keys. Compare all of \
         them by a way that shows who speaks: side by side, or by voice.\n"
    );
    Out::new().text(&(human::columns(&lines, human::width()) + &advice))
}

/// The words of two keys, in either order.
fn words(one: &PublicKey, other: &PublicKey) -> Result<[&'static str; WORDS], Failure> {
    let mut keys = [*one.as_bytes(), *other.as_bytes()];
    keys.sort_unstable();
    let mut bits = [0; (WORDS * 11).div_ceil(8)];
    let cost = scrypt::Params::new(LOG_N, 8, 1).map_err(|error| Failure::Usage(error.to_string()))?;
    scrypt::scrypt(keys.as_flattened(), CONTEXT, &cost, &mut bits)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let list = Language::English.word_list();
    let bit = |at: usize| usize::from(bits[at / 8] >> (7 - at % 8) & 1);
    Ok(std::array::from_fn(|word| {
        let number = (0..11).fold(0, |number, at| number << 1 | bit(word * 11 + at));
        list[number]
    }))
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    #[test]
    fn both_ends_show_the_same_and_other_keys_show_others() {
        let text = |one, other| words(&key(one), &key(other)).unwrap().join(" ");
        assert_eq!(text(1, 2), text(2, 1));
        assert_ne!(text(1, 2), text(1, 3));
        assert_ne!(text(1, 2), text(3, 2));
        assert_ne!(text(1, 1), text(2, 2));
        // Two versions of weft have to agree.
        assert_eq!(text(1, 2), EXPECTED);
    }

    /// Computed with another implementation of scrypt.
    const EXPECTED: &str = "age scare lock bid stock blur stool tape";
}
