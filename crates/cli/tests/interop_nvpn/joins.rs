//! How devices come and go.

use crate::common::{MINUTE, wait_until};
use crate::device::binary;
use crate::network::{Net, done, member, network};

#[test]
fn devices_join_by_link_and_by_hand_and_forget_the_network() {
    let Some(program) = binary() else { return };
    let net = Net::apart(&program, 3_600);
    let [desk, nas] = &net.weft;
    let [phone, tablet] = &net.devices;
    let shown = done(desk, &["approve", &phone.link(), "--name", "phone"]);
    assert!(shown.contains("phone is a member of home"), "{shown}");
    wait_until(MINUTE, "the phone has joined", || {
        member(desk, "phone")["nvpn"] == true && member(desk, "phone")["sought"].is_null()
    });
    wait_until(MINUTE, "the phone sees both nodes", || phone.online() == 2);

    let id = network(desk)["id"].as_str().unwrap().to_owned();
    let admin = &desk.identity().npub;
    tablet.run(&["join-manual", "--admin-device-id", admin, "--network-id", &id]);
    tablet.reload();
    done(desk, &["approve", &tablet.key(), "--nvpn", "--name", "tablet"]);
    wait_until(MINUTE, "all are there", || phone.online() == 3 && tablet.online() == 3);
    for name in ["phone", "tablet"] {
        wait_until(MINUTE, "both nodes know the devices", || {
            [desk, nas].iter().all(|node| member(node, name)["nvpn"] == true)
        });
    }
    net.assert_all_reach();

    done(desk, &["member", "remove", "tablet"]);
    wait_until(MINUTE, "the tablet forgets the network", || {
        !tablet.run(&["status"]).contains(&format!("network: {id}"))
    });
    wait_until(MINUTE, "the phone sees two nodes", || phone.online() == 2);
    assert!(member(nas, "tablet").is_null());
}
