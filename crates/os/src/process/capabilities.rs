//! Capabilities of the calling thread: capabilities(7).

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities,
};

use super::privileges::PrivilegeError;

/// Whether the calling thread may change interfaces and routes of its network namespace.
#[must_use]
pub fn has_net_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Drops CAP_SYS_NICE in the calling thread for good.
///
/// # Errors
/// [`PrivilegeError::Io`]; not known to occur.
pub fn give_up_nice() -> Result<(), PrivilegeError> {
    let mut sets = current()?;
    sets.permitted.remove(CapabilitySet::SYS_NICE);
    sets.effective = sets.permitted;
    apply(sets)
}

/// The sets of the calling thread.
pub(super) fn current() -> Result<CapabilitySets, PrivilegeError> {
    capabilities(None).map_err(|e| PrivilegeError::new("read the capabilities", e))
}

/// Gives the calling thread these sets.
pub(super) fn apply(sets: CapabilitySets) -> Result<(), PrivilegeError> {
    set_capabilities(None, sets).map_err(|e| PrivilegeError::new("drop the capabilities", e))
}

/// Empties the bounding set but for `kept`. A thread without CAP_SETPCAP cannot reduce it; then
/// `no_new_privs` makes the set useless.
pub(super) fn empty_bounding_set(kept: CapabilitySet) -> Result<(), PrivilegeError> {
    if !current()?.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // The first that the kernel does not know comes after the last.
        if capability_is_in_bounding_set(capability).is_err() {
            break;
        }
        if kept.contains(capability) {
            continue;
        }
        remove_capability_from_bounding_set(capability)
            .map_err(|e| PrivilegeError::new("shrink the capability bounding set", e))?;
    }
    Ok(())
}
