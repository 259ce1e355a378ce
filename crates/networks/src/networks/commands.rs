//! Changes that an administrator orders, and what they consist of.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;
use weft_roster::invite::{Code, EntryPoint, Seed};
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::rules::Policy;
use weft_wire::Subnet;

use super::Networks;
use crate::network::Demotion;
use crate::{Network, NetworkError, Signed, Wish};

/// What a new invite says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInvite {
    /// The name of the member that it brings.
    pub name: Option<Name>,
    /// The tags that members get.
    pub tags: BTreeSet<Name>,
    /// How many members it may bring.
    pub uses: u32,
    /// Its end, in seconds since 1970.
    pub expires: u64,
    /// Addresses of this node.
    pub addresses: Vec<SocketAddr>,
    /// Another way into the network.
    pub entry: Option<EntryPoint>,
}

/// A change of the rules of a network. Members may be named in the text of a rule. In requests to a daemon
/// `kind` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RuleChange {
    /// A rule is added.
    Add {
        /// The rule.
        rule: String,
        /// The number that it gets, from 1; without one it is the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<usize>,
    },
    /// A rule is removed.
    Remove {
        /// Its number, from 1.
        at: usize,
    },
    /// All rules are replaced.
    Set {
        /// The rules.
        rules: Vec<String>,
    },
    /// What is done with flows that no rule matches.
    Default {
        /// What is done.
        policy: Policy,
    },
}

/// A change of a route of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteChange {
    /// It is used from now on.
    Approve,
    /// It is used no longer.
    Revoke,
}

/// A member that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Its key.
    pub key: PublicKey,
    /// The records that were signed again because the member had signed them as administrator, each
    /// in words.
    pub again: Vec<String>,
}

/// A change of a member, in the words of a command: its texts are checked as it is carried out. In requests to a
/// daemon `change` names it. Those without fields have braces, as only then serde refuses further fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MemberChange {
    /// It is removed.
    Remove {},
    /// It gets another name.
    Rename {
        /// The name.
        name: String,
    },
    /// It gets tags, and keeps those that it has.
    Tag {
        /// The tags.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// It loses tags.
    Untag {
        /// The tags, all of which it has.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// Its IPv4 address is fixed, or follows from its key again.
    Address {
        /// The address; `None` for the one that follows from its key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ipv4: Option<Ipv4Addr>,
    },
    /// It is removed, and another member takes over its name, tags and fixed address.
    Replace {
        /// Name or npub of the member that takes over; also the npub of a node that has asked for membership.
        by: String,
    },
    /// It becomes an administrator.
    MakeAdmin {},
    /// It is an administrator no longer. Records of its own that stay are signed again.
    RevokeAdmin {},
}

impl Networks {
    /// Makes an invite, and returns its code.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn invite(
        &mut self,
        of: Option<&str>,
        invite: &NewInvite,
        seed: Seed,
        (now, unix): (u64, u64),
    ) -> Result<Code, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        let code = network.invite(identity, invite, seed, now, unix)?;
        self.changed = true;
        Ok(code)
    }

    /// Changes a member. A change that takes rights from an administrator needs a `wish` if something rests
    /// on what it has signed.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_member(
        &mut self,
        of: Option<&str>,
        member: &str,
        (change, wish): (MemberChange, Option<&Wish>),
        (now, unix): (u64, u64),
    ) -> Result<Changed, NetworkError> {
        let id = self.find(of)?;
        if let MemberChange::Replace { by } = &change {
            self.take_in_successor(id, member, by, (now, unix))?;
        }
        let secret = change.takes_rights().then(|| self.rng.random_bytes());
        let (identity, network) = self.with(id)?;
        let changed = network.change_member(identity, member, (change, wish), now, unix);
        let changed = changed.map_err(|error| network.with_names(error))?;
        if let Some(bytes) = secret
            && network.is_admin(&identity.public())
        {
            network.replace_secret(identity, bytes, (now, unix));
        }
        self.changed = true;
        Ok(changed)
    }

    /// Lists the records that end with the rights of an administrator, or of this node's successor for `None`,
    /// and returns the mark of the list for a [`Wish`]. The list of another member is empty. `leaves`: its
    /// membership ends, too.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn signed_by(
        &self,
        of: Option<&str>,
        (member, leaves): (Option<&str>, bool),
        unix: u64,
    ) -> Result<(Vec<Signed>, String), NetworkError> {
        let id = match member {
            Some(_) => self.find(of)?,
            None => self.find_own(of)?,
        };
        let network = self.all.get(&id).ok_or(NetworkError::NoNetwork)?;
        network.check_own()?;
        let admin = match member {
            Some(member) => {
                let key = network.known(member)?;
                if network.has_been_admin(&key) && key != self.own {
                    let checked = network.check_revocation(&self.own, &key);
                    checked.map_err(|error| network.with_names(error))?;
                }
                Some(key)
            }
            None => network.falling_successor(&self.identity, unix)?,
        };
        let demotion = admin.as_ref().map(|admin| Demotion {
            admin,
            by: &self.own,
            leaves,
        });
        let signed = demotion
            .map(|demotion| network.signed_by(demotion, unix))
            .unwrap_or_default();
        let mark = Network::mark(&signed);
        Ok((signed, mark))
    }

    /// Names the founder's successor, or none. Returns the network, and what was signed again. If the
    /// former one is an administrator no longer, a `wish` says what stays of what it has signed.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn set_successor(
        &mut self,
        of: Option<&str>,
        (member, wish): (Option<&str>, Option<&Wish>),
        (now, unix): (u64, u64),
    ) -> Result<(NetworkId, Vec<String>), NetworkError> {
        let id = self.find_own(of)?;
        let (identity, network) = self.with(id)?;
        let again = network.set_successor(identity, (member, wish), now, unix)?;
        self.changed = true;
        Ok((id, again))
    }

    /// Changes the rules of a network.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_rules(
        &mut self,
        of: Option<&str>,
        change: RuleChange,
        (now, unix): (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.change_rules(identity, change, now, unix)?;
        self.changed = true;
        Ok(id)
    }

    /// Approves or revokes a route of a member.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_route(
        &mut self,
        of: Option<&str>,
        route: (&str, Subnet),
        change: RouteChange,
        times: (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.change_route(identity, route, change, times)?;
        self.changed = true;
        Ok(id)
    }

    /// Approves a member as exit, or revokes that.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_exit(
        &mut self,
        of: Option<&str>,
        member: &str,
        change: RouteChange,
        times: (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.change_exit(identity, member, change, times)?;
        self.changed = true;
        Ok(id)
    }

    /// Revokes the open invite whose key begins with `prefix`.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn revoke(&mut self, of: Option<&str>, prefix: &str, (now, unix): (u64, u64)) -> Result<(), NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.revoke(identity, prefix, now, unix)?;
        self.changed = true;
        Ok(())
    }
}
