//! The null tunnel, which is part of weft: `weft lab null`.

use std::path::Path;
use std::process::Command;

use super::{DriverError, EndPoint, Running, Stage, Tunnel, UNDERLAY};
use crate::bench::arm::Arm;

/// UDP payload of a datagram, bytes: 1,500 less IPv4 and UDP headers, less the overhead of a tunnel
/// with keys.
const SEGMENT: u16 = 1452;

/// MTU inside, bytes, equal to that of the WireGuard arms.
const MTU: u32 = 1420;

const PORT: u16 = 7000;
const DEVICE: &str = "null0";

pub(super) fn start(arm: &Arm, program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let (mut segment, mut seal) = (SEGMENT.to_string(), None);
    for setting in &arm.settings {
        match setting.key.as_str() {
            "segment" => segment.clone_from(&setting.value),
            "seal" => seal = Some(&setting.value),
            other => return Err(DriverError::Setting(other.to_owned())),
        }
    }
    let (mut ends, mut children) = (Vec::new(), Vec::new());
    for end in 0..2 {
        let peer = format!("{}:{PORT}", UNDERLAY[1 - end]);
        let mut command = Command::new(program);
        command.args(["lab", "null", "--tun", DEVICE, "--port", &PORT.to_string()]);
        command.args(["--peer", &peer, "--segment", &segment]);
        if let Some(suite) = seal {
            command.args(["--seal", suite]);
        }
        let mut child = stage.start(end, command)?;
        let index = stage.wait_interface(end, DEVICE, &mut child)?;
        let address = std::net::Ipv4Addr::new(10, 99, 0, end as u8 + 1).into();
        stage.address(end, index, (address, 24), MTU)?;
        ends.push(EndPoint {
            address,
            device: DEVICE.to_owned(),
            processes: vec![child.pid()],
        });
        children.push(child);
    }
    super::both(ends, MTU, Running::Children(children))
}
