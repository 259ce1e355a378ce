//! How devices come and go.

use crate::common::{MINUTE, wait_until};
use crate::device::binary;
use crate::network::{Net, assert_reaches, done, member, member_of_key, network};

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
    wait_until(MINUTE, "the tablet forgets the network", || !tablet.knows(&id));
    wait_until(MINUTE, "the phone sees two nodes", || phone.online() == 2);
    assert!(member(nas, "tablet").is_null());
}

#[test]
fn an_administrator_changes_members_with_a_device() {
    let Some(program) = binary() else { return };
    let net = Net::start(&program, 3_600);
    let [desk, nas] = &net.weft;
    let [phone, tablet] = &net.devices;
    let key = tablet.key();
    done(desk, &["admin", "add", "phone"]);
    let is_in = |there: bool| {
        [desk, nas]
            .iter()
            .all(|node| member_of_key(node, &key).is_null() != there)
    };
    // Until it has the list that makes it an administrator, it changes what is its own alone.
    wait_until(MINUTE, "the phone is an administrator", || phone.is_admin(&phone.key()));
    phone.run(&["remove-device", "--device", &key]);
    wait_until(MINUTE, "the tablet is no member", || is_in(false));
    let id = network(desk)["id"].as_str().unwrap().to_owned();
    // Otherwise the list without it, which is on its way, ends the join as well.
    wait_until(MINUTE, "the tablet forgets the network", || !tablet.knows(&id));
    tablet.run(&["join-manual", "--admin-device-id", &phone.key(), "--network-id", &id]);
    tablet.dial(&[
        (&desk.identity().npub, "10.9.0.1:2121"),
        (&phone.key(), "10.9.0.3:51820"),
    ]);
    phone.run(&["add-device", "--device", &key]);
    wait_until(MINUTE, "the tablet is a member again", || is_in(true));
    assert_reaches(nas.host(), tablet.address());
    assert_reaches(&tablet.host, crate::network::address(nas));

    // Administrators are changed with weft: the next list undoes it.
    phone.run(&["add-admin", "--device", &key]);
    wait_until(2 * MINUTE, "the records hold", || !phone.is_admin(&key));
    assert!(member(desk, "desk")["admin"] == true && member_of_key(desk, &key)["admin"] != true);
}
