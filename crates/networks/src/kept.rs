//! A network as the text of a file: its records, and the presences of its members.
//!
//! Both are JSON with a `schema`. Decision 0037 says why a node keeps them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;
use weft_nostr::event::Event;
use weft_roster::invite::Proof;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::record::Record;
use weft_roster::set::{MAX_SET, RecordSet};

use crate::{Network, Presence, SignedMembers};

/// The `schema` of a file.
pub const SCHEMA: &str = "weft.network/1";
/// The `schema` of a network that was founded with nvpn: a reader of [`SCHEMA`] would take it for one without
/// members.
const SCHEMA_OF_NVPN: &str = "weft.network/2";
/// The `schema` of a file with presences.
const PRESENCES: &str = "weft.presence/2";
/// The longest text of a network, in bytes: the records, their escapes, and the rest.
pub const MAX_LEN: u64 = 3 * MAX_SET as u64;

#[derive(Serialize, Deserialize)]
struct Content {
    schema: String,
    network: String,
    /// Each is the JSON of an event.
    records: Vec<String>,
    contacts: BTreeMap<String, Vec<SocketAddr>>,
    /// The JSON of the signed list, in a network that was founded with nvpn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nvpn: Option<String>,
    /// The name of the network on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// Its place in the order in which this node came into its networks.
    #[serde(default)]
    place: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joining: Option<Asked>,
}

/// What all versions have.
#[derive(Deserialize)]
struct Versioned {
    schema: String,
}

/// Whether a schema is that of networks in a later version.
fn is_newer(schema: &str) -> bool {
    let number = |schema: &str| schema.strip_prefix("weft.network/")?.parse::<u32>().ok();
    number(schema) > number(SCHEMA_OF_NVPN)
}

#[derive(Serialize, Deserialize)]
struct Asked {
    /// Both are missing if an administrator has approved the node without an invite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invite: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Why a text is not that of a network, or of presences.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It is not JSON, or lacks a field.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It has another schema.
    #[error("its schema is not {0}")]
    Schema(&'static str),
    /// A later version of Weft wrote it.
    #[error("it is {0}, of a later version of weft; this one reads {SCHEMA_OF_NVPN} and earlier ones")]
    Newer(String),
    /// A field does not have the form that it must have.
    #[error(transparent)]
    Field(Box<dyn std::error::Error + Send + Sync>),
}

/// Returns a network as text.
///
/// # Errors
/// [`KeptError::Json`], which no network is known to lead to.
pub fn to_text(network: &Network) -> Result<String, KeptError> {
    let foreign = network.signed_members();
    let content = Content {
        schema: if foreign.is_some() { SCHEMA_OF_NVPN } else { SCHEMA }.to_owned(),
        nvpn: foreign.map(|foreign| foreign.event.to_json()),
        network: network.id().to_string(),
        records: network.set().records().map(|record| record.event().to_json()).collect(),
        contacts: network
            .contacts()
            .iter()
            .map(|(key, addresses)| (key.to_string(), addresses.clone()))
            .collect(),
        label: network.label().map(ToString::to_string),
        place: network.place(),
        joining: network.joining().map(|joining| Asked {
            invite: joining.proof.as_ref().map(|proof| hex::encode(proof.invite)),
            proof: joining.proof.as_ref().map(|proof| hex::encode(proof.signature)),
            name: joining.name.as_ref().map(ToString::to_string),
        }),
    };
    Ok(serde_json::to_string(&content)?)
}

/// Reads the network of the node `own` from its text.
///
/// # Errors
/// [`KeptError`]
pub fn from_text(text: &str, own: &PublicKey) -> Result<Network, KeptError> {
    // A later version may have other fields.
    let Versioned { schema } = serde_json::from_str(text)?;
    if is_newer(&schema) {
        return Err(KeptError::Newer(schema));
    }
    if schema != SCHEMA && schema != SCHEMA_OF_NVPN {
        return Err(KeptError::Schema(SCHEMA));
    }
    let content: Content = serde_json::from_str(text)?;
    if content.nvpn.is_some() != (schema == SCHEMA_OF_NVPN) {
        return Err(invalid("a network of nvpn has its list, and another one has none"));
    }
    let id = content.network.parse().map_err(invalid)?;
    let records = content
        .records
        .iter()
        .map(|json| Record::parse_of(id, json.as_bytes()).map(Arc::new));
    let set = RecordSet::of_file(id, &records.collect::<Result<Vec<_>, _>>().map_err(invalid)?);
    let contacts = content.contacts.into_iter();
    let contacts = contacts.map(|(key, addresses)| Ok((key.parse().map_err(invalid)?, addresses)));
    let joining = content.joining.map(|asked| {
        let proof = match (&asked.invite, &asked.proof) {
            (None, None) => None,
            (Some(invite), Some(signature)) => Some(Proof {
                invite: hex::FromHex::from_hex(invite).map_err(invalid)?,
                signature: hex::FromHex::from_hex(signature).map_err(invalid)?,
            }),
            _ => return Err(invalid("invite and proof belong together")),
        };
        let name = asked
            .name
            .map(|text| Name::written(Name::host(&text)).map_err(invalid))
            .transpose()?
            .flatten();
        Ok::<_, KeptError>((proof, name))
    });
    let label = content
        .label
        .map(|text| Name::written(Name::network(&text)).map_err(invalid))
        .transpose()?;
    if let Some(event) = &content.nvpn {
        let signed = Event::parse(event.as_bytes()).map_err(invalid)?;
        let signed = SignedMembers::read(signed).map_err(invalid)?;
        if signed.id() != id {
            return Err(invalid("the list is that of another network"));
        }
        return Ok(Network::foreign(own, signed).placed(label.flatten(), content.place));
    }
    let network = Network::kept(
        own,
        set,
        contacts.collect::<Result<_, KeptError>>()?,
        joining.transpose()?,
    );
    Ok(network.placed(label.flatten(), content.place))
}

#[derive(Serialize, Deserialize)]
struct Presences {
    schema: String,
    /// When it was written, in seconds since 1970.
    unix: u64,
    /// Each is a presence as in a document, in hexadecimal digits, with its age then.
    presences: Vec<String>,
}

/// Returns the presences of a network as text. `unix` is the time in seconds since 1970 at `now`.
///
/// # Errors
/// [`KeptError::Json`], which no network is known to lead to.
pub fn presences_to_text(network: &Network, (now, unix): (u64, u64)) -> Result<String, KeptError> {
    let text = |(presence, age): (&Presence, u64)| {
        let mut bytes = Vec::new();
        presence.emit(u32::try_from(age).unwrap_or(u32::MAX), &mut bytes);
        hex::encode(bytes)
    };
    let content = Presences {
        schema: PRESENCES.to_owned(),
        unix,
        presences: network.presences(now).map(text).collect(),
    };
    Ok(serde_json::to_string(&content)?)
}

/// Adds the presences of a text to a network. They are older by the time since the text was made.
///
/// # Errors
/// [`KeptError`]: the text has none that can be used.
pub fn add_presences(text: &str, network: &mut Network, (now, unix): (u64, u64)) -> Result<(), KeptError> {
    for (presence, age) in read_presences(text, unix)? {
        network.restore_presence(presence, age, now);
    }
    Ok(())
}

/// A network whose text is lost. It listens to the members that the text of its presences names, and
/// that a new text of it can be made of.
#[must_use]
pub fn lost(own: &PublicKey, id: NetworkId, presences: Option<&str>) -> Network {
    let known = presences.and_then(|text| read_presences(text, u64::MAX).ok());
    let members = known.unwrap_or_default().into_iter().map(|(presence, _)| presence);
    let contacts = members.map(|presence| (presence.member, presence.places.addresses().collect()));
    Network::lost(own, id, contacts.filter(|(member, _)| member != own).collect())
}

/// The presences of a text that can be used, each with its age in s at the time `unix`.
fn read_presences(text: &str, unix: u64) -> Result<Vec<(Presence, u64)>, KeptError> {
    let content: Presences = serde_json::from_str(text)?;
    if content.schema != PRESENCES {
        return Err(KeptError::Schema(PRESENCES));
    }
    let since = unix.saturating_sub(content.unix);
    let read = |text: String| {
        let (presence, age) = Presence::read(&hex::decode(text).ok()?).ok()?;
        Some((presence, u64::from(age).saturating_add(since)))
    };
    Ok(content.presences.into_iter().filter_map(read).collect())
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> KeptError {
    KeptError::Field(why.into())
}
