//! Commands about membership without an invite.

use std::net::SocketAddr;

use weft_control::MAX_ACCEPTED_S;
use weft_control::status::{AskedStatus, Document as _, RequestList, RequestStatus};
use weft_networks::{Approval, Asked, Networks, fingerprint};
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;

use super::run::Daemon;

impl Daemon {
    /// Begins to ask an administrator.
    pub(super) fn ask_admin(
        &mut self,
        admin: &str,
        addresses: Vec<SocketAddr>,
        host: Option<&str>,
        now: u64,
    ) -> Result<(), String> {
        let admin = key(admin)?;
        let name = host.map(Name::host).transpose().map_err(|error| error.to_string())?;
        let asked = self.networks.ask_admin(admin, addresses, name, now);
        asked.map_err(|error| error.to_string())
    }

    /// Lists requests, after it has begun or ceased to accept them if `accept_s` says so.
    pub(super) fn requests(&mut self, accept_s: Option<u32>) -> Result<RequestList, String> {
        let now = boottime_ms();
        match accept_s {
            Some(seconds) if seconds > MAX_ACCEPTED_S => {
                return Err(format!("requests are accepted for {MAX_ACCEPTED_S} s at most"));
            }
            Some(seconds) => {
                let accepted = self.networks.accept_requests(u64::from(seconds) * 1_000, now);
                accepted.map_err(|error| error.to_string())?;
            }
            None => {}
        }
        Ok(request_list(&self.networks, now))
    }

    /// Takes a node in that has asked, or an nvpn device. Returns the network.
    pub(super) fn approve(
        &mut self,
        network: Option<&str>,
        (node, nvpn): (&str, bool),
        name: Option<&str>,
        tags: &[String],
        times: (u64, u64),
    ) -> Result<NetworkId, String> {
        let approval = Approval {
            name: name.map(Name::host).transpose().map_err(|error| error.to_string())?,
            tags: Name::labels(tags).map_err(|error| error.to_string())?,
        };
        if nvpn || node.starts_with(weft_nvpn::join::SCHEME) || self.asks_as_device(node) {
            return self.approve_device(network, node, approval, times);
        }
        let approved = self.networks.approve(network, &key(node)?, approval, times);
        approved.map_err(|error| error.to_string())
    }

    /// Denies the request of a node.
    pub(super) fn deny(&mut self, node: &str) -> Result<RequestList, String> {
        let now = boottime_ms();
        let denied = self.networks.deny(&key(node)?, now);
        denied.map_err(|error| error.to_string())?;
        Ok(request_list(&self.networks, now))
    }
}

/// Reads an npub.
fn key(text: &str) -> Result<PublicKey, String> {
    let shown = text.escape_debug();
    text.parse()
        .map_err(|error| format!("{shown} is no public key ({error}); `weft identity show` prints that of a node"))
}

fn request_list(networks: &Networks, now: u64) -> RequestList {
    let requests = networks.requests(now).map(|(key, request)| RequestStatus {
        npub: key.to_string(),
        fingerprint: fingerprint(key),
        name: request.name.as_ref().map(ToString::to_string),
        age_s: now.saturating_sub(request.since) / 1_000,
    });
    RequestList {
        schema: RequestList::SCHEMA.to_owned(),
        npub: networks.own().to_string(),
        fingerprint: fingerprint(networks.own()),
        accepted_s: networks.accepts_requests(now).map(|ms| ms.div_ceil(1_000)),
        requests: requests.collect(),
    }
}

/// Describes the progress of a request of this node.
pub(super) fn asked_status(admin: &PublicKey, asked: &Asked) -> AskedStatus {
    AskedStatus {
        npub: admin.to_string(),
        fingerprint: fingerprint(admin),
        why: asked.verdict.map_or_else(
            || {
                "no answer yet: the administrator's machine is off, its address is another one (--address), or it accepts no \
                 requests (`weft requests --accept 10m` there)"
                    .to_owned()
            },
            |verdict| verdict.to_string(),
        ),
        refused: !asked.is_open() && asked.network.is_none(),
        network: asked.network.map(|network| network.to_string()),
        asked_at: Vec::new(),
    }
}
