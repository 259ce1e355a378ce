//! How a device asks to be taken in: the link that it shows, and the token of a manual join.
//!
//! The link has a secret, which the administrator's answer repeats. Who holds the link first decides
//! which network the device joins, so it is treated as a password. The token of a manual join is
//! computed from three identifiers that both ends know; it proves nothing.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::PublicKey;
use zeroize::Zeroizing;

use crate::network_id::NetworkId;
use crate::secret::Secret;
use crate::shared_roster::{MAX_AHEAD, SharedRoster};

/// What each link of nvpn begins with.
pub const SCHEME: &str = "nvpn://";
/// What a link begins with that asks to join.
pub const PREFIX: &str = "nvpn://join-request/";
/// The bytes of the longest link.
pub const MAX_LINK: usize = 384;
/// The bytes of the longest label.
pub const MAX_LABEL: usize = 16;
/// The age in seconds up to which a list is taken by a device that joins.
pub const MAX_AGE: u64 = 7 * 24 * 60 * 60;
/// The domain of the hash that makes the token of a manual join.
const MANUAL_DOMAIN: &[u8] = b"nostr-vpn-manual-join-v1\0";

/// What a device shows in order to join, as a link or as a QR code of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinLink {
    /// The key of the device.
    pub device: PublicKey,
    /// A key for this request alone.
    pub request: PublicKey,
    /// 32 random bytes as text in base64url.
    pub secret: Secret,
    /// What the device is called, of at most [`MAX_LABEL`] bytes.
    pub label: Option<String>,
}

/// The reason why a text is not a [`JoinLink`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JoinLinkError {
    /// Another beginning.
    #[error("a link of an nvpn device begins with {PREFIX}")]
    Prefix,
    /// More than [`MAX_LINK`] bytes.
    #[error("a link of an nvpn device has at most {MAX_LINK} characters, this one has {0} bytes")]
    TooLong(usize),
    /// Not base64url of the JSON of a link.
    #[error("the link is not complete, or of another version of nvpn")]
    Form,
    /// A key that is none.
    #[error("the link has no valid key as `{0}`")]
    Key(&'static str),
    /// The keys of device and request are the same.
    #[error("the link has the same key for the device and for the request")]
    SameKey,
    /// A secret other than 32 bytes in base64url.
    #[error("the secret of the link has a wrong length or character")]
    Secret,
    /// A label that is too long.
    #[error("the label of the link has more than {MAX_LABEL} bytes")]
    Label,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    device_app_key_npub: String,
    request_npub: String,
    request_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

impl JoinLink {
    /// Reads a link. White space around it is passed over.
    ///
    /// # Errors
    /// [`JoinLinkError`].
    pub fn read(text: &str) -> Result<Self, JoinLinkError> {
        let text = text.trim();
        let payload = text.strip_prefix(PREFIX).ok_or(JoinLinkError::Prefix)?;
        if text.len() > MAX_LINK {
            return Err(JoinLinkError::TooLong(text.len()));
        }
        let json = BASE64URL_NOPAD.decode(payload.as_bytes()).map(Zeroizing::new);
        let body: Body =
            serde_json::from_slice(&json.map_err(|_| JoinLinkError::Form)?).map_err(|_| JoinLinkError::Form)?;
        let secret = Secret::new(body.request_secret);
        let key = |text: &str, name| match text.starts_with("npub1") {
            true => text.parse().map_err(|_| JoinLinkError::Key(name)),
            false => Err(JoinLinkError::Key(name)),
        };
        let device = key(&body.device_app_key_npub, "deviceAppKeyNpub")?;
        let request = key(&body.request_npub, "requestNpub")?;
        if device == request {
            return Err(JoinLinkError::SameKey);
        }
        let bytes = BASE64URL_NOPAD.decode(secret.as_str().as_bytes()).map(Zeroizing::new);
        if !bytes.is_ok_and(|bytes| bytes.len() == 32) {
            return Err(JoinLinkError::Secret);
        }
        let label = body
            .label
            .map(|label| label.trim().to_owned())
            .filter(|label| !label.is_empty());
        if label.as_ref().is_some_and(|label| label.len() > MAX_LABEL) {
            return Err(JoinLinkError::Label);
        }
        Ok(Self {
            device,
            request,
            secret,
            label,
        })
    }

    /// Makes the link of a device from 32 random bytes. The label loses its control characters, and is
    /// cut to [`MAX_LABEL`] bytes.
    #[must_use]
    pub fn new(device: PublicKey, request: PublicKey, secret: &[u8; 32], label: &str) -> Self {
        let mut label: String = label.trim().chars().filter(|c| !c.is_control()).collect();
        label.truncate(label.floor_char_boundary(MAX_LABEL));
        label.truncate(label.trim_end().len());
        Self {
            device,
            request,
            secret: Secret::new(BASE64URL_NOPAD.encode(secret)),
            label: (!label.is_empty()).then_some(label),
        }
    }

    /// The link as text.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let body = Body {
            device_app_key_npub: self.device.to_string(),
            request_npub: self.request.to_string(),
            request_secret: self.secret.as_str().to_owned(),
            label: self.label.clone(),
        };
        // There is nothing in it that JSON lacks.
        let json = Zeroizing::new(serde_json::to_vec(&body).unwrap_or_default());
        Zeroizing::new(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&json)))
    }
}

/// The token of a manual join: what takes the place of the secret of a link where a device and an
/// administrator were told of each other by hand.
#[must_use]
pub fn manual_token(network: &NetworkId, admin: &PublicKey, device: &PublicKey) -> String {
    let mut hash = Sha256::new().chain_update(MANUAL_DOMAIN);
    let [admin, device] = [admin, device].map(|key| HEXLOWER.encode(key.as_bytes()));
    for part in [network.as_str(), &admin, &device] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("manual-v1:{}", HEXLOWER.encode(&hash.finalize()))
}

/// The reason why a device does not join by a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JoinRefusal {
    /// Another secret than that of the link.
    #[error("it does not answer this request")]
    Secret,
    /// Signed before the device asked.
    #[error("it was signed before this device asked")]
    Early,
    /// More than [`MAX_AGE`] seconds old.
    #[error("it is more than seven days old")]
    Old,
    /// More than [`MAX_AHEAD`] seconds ahead.
    #[error("it comes from the future; do both clocks agree?")]
    Future,
    /// Another network than that of the manual join.
    #[error("it is of another network than this request")]
    Network,
    /// This device is not in it.
    #[error("it does not name this device")]
    NotNamed,
    /// Its signer is not one of its administrators, or not the one of the manual join.
    #[error("its signer is not the administrator of this request")]
    Signer,
}

/// What a device waits for that has asked to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The device.
    pub device: PublicKey,
    /// The secret of its link, or the token of a manual join.
    pub secret: Secret,
    /// The administrator that must have signed: the one of a manual join, whose token any node can
    /// compute. `None` for a link, whose secret decides.
    pub admin: Option<PublicKey>,
    /// The network of a manual join. `None` for a link, with which the administrator chooses.
    pub network: Option<NetworkId>,
    /// When the request was made, in seconds since 1970. A list that was signed earlier does not
    /// count; 0 for a manual join, where it does.
    pub requested_at: u64,
}

impl Pending {
    /// Checks whether the device joins by a list that came with `secret`, at `now` in seconds since
    /// 1970.
    ///
    /// # Errors
    /// [`JoinRefusal`]: the first reason that applies.
    pub fn accepts(&self, list: &SharedRoster, secret: &Secret, now: u64) -> Result<(), JoinRefusal> {
        if !self.secret.matches(secret.as_str()) {
            return Err(JoinRefusal::Secret);
        }
        if list.signed_at < self.requested_at {
            return Err(JoinRefusal::Early);
        }
        if list.signed_at > now.saturating_add(MAX_AHEAD) {
            return Err(JoinRefusal::Future);
        }
        if now.saturating_sub(list.signed_at) > MAX_AGE {
            return Err(JoinRefusal::Old);
        }
        if self.network.as_ref().is_some_and(|network| *network != list.network) {
            return Err(JoinRefusal::Network);
        }
        if !list.names(&self.device) {
            return Err(JoinRefusal::NotNamed);
        }
        let expected = self.admin.is_none_or(|admin| admin == list.signer);
        if !expected || !list.admins.contains(&list.signer) {
            return Err(JoinRefusal::Signer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
