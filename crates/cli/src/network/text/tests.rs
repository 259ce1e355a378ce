use weft_control::status::MemberRouteStatus;

use super::*;

fn member(npub: &str, admin: bool, own: bool) -> MemberStatus {
    MemberStatus {
        npub: npub.to_owned(),
        name: Some(npub.to_owned()),
        address: "fd00::1".parse().unwrap(),
        ipv4: None,
        unused: None,
        admin,
        successor: false,
        own,
        tags: Vec::new(),
        standing: None,
        heard_s: None,
        nvpn: false,
        sought: None,
    }
}

fn list(members: Vec<MemberStatus>) -> NetworkList {
    NetworkList {
        schema: String::new(),
        networks: vec![NetworkStatus {
            id: "0123".to_owned(),
            name: Some("home".to_owned()),
            label: Some("home".to_owned()),
            founded_with: None,
            state: NetworkState::Member,
            why: String::new(),
            refused: false,
            ipv4: None,
            members,
            invites: Vec::new(),
            rules: None,
            default: String::new(),
            routes: Vec::new(),
            shadowed: Vec::new(),
            admins_outside: Vec::new(),
            unsaved: None,
            writing: false,
            asked_at: Vec::new(),
            numbered: Vec::new(),
        }],
        asked: Vec::new(),
        signed_again: Vec::new(),
        resigned: None,
        nvpn_request: None,
    }
}

#[test]
fn an_address_that_is_not_used_is_named_with_the_reason() {
    let mut all = list(vec![member("npub1a", false, true), member("npub1b", false, false)]);
    for (member, ipv4) in all.networks[0].members.iter_mut().zip(["192.168.1.7", "192.168.1.1"]) {
        member.ipv4 = ipv4.parse().ok();
        member.unused = Some("a router of this host has it".to_owned());
    }
    let expected = [
        "192.168.1.7, the address of this machine, is not used: a router of this host has it.",
        "192.168.1.1, the address of npub1b, is not used: a router of this host has it.",
    ];
    for text in [members(&all, 200), networks(&all, 200), hints(&all, 200)] {
        assert!(expected.iter().all(|line| text.contains(line)), "{text}");
    }
}

#[test]
fn leave_says_that_others_list_the_node_only_if_they_do() {
    let two = || vec![member("npub1a", true, true), member("npub1b", false, false)];
    let mut removed = list(two());
    removed.networks[0].state = NetworkState::Removed;
    let alone = list(vec![member("npub1a", true, true)]);
    for (list, wanted, listed) in [
        (list(two()), None, true),
        (list(two()), Some("home"), true),
        (list(two()), Some("lab"), false),
        (removed, None, false),
        (alone, None, false),
    ] {
        assert_eq!(is_listed_by_others(&list, wanted), listed);
        let text = left(&list, listed);
        assert_eq!(text.contains("the other members list this node"), listed, "{text}");
        assert!(text.starts_with("left"), "{text}");
    }
}

#[test]
fn one_network_of_several_is_listed() {
    let mut all = list(Vec::new());
    let mut other = all.networks[0].clone();
    (other.id, other.label) = ("4567".to_owned(), Some("home-2".to_owned()));
    all.networks.push(other);
    for (wanted, id) in [("home", "0123"), ("home-2", "4567"), ("4567", "4567")] {
        let mut document = serde_json::to_value(&all).unwrap();
        keep(&mut document, wanted).unwrap();
        let kept: NetworkList = serde_json::from_value(document).unwrap();
        assert_eq!(
            kept.networks.iter().map(|network| &*network.id).collect::<Vec<_>>(),
            [id]
        );
    }
    assert_eq!(keep(&mut serde_json::to_value(&all).unwrap(), "work"), None);
}

#[test]
fn a_replacement_says_which_routes_end() {
    let mut all = list(vec![member("old", false, false), member("new", false, false)]);
    let route = |subnet: &str, exit, approved| MemberRouteStatus {
        subnet: subnet.to_owned(),
        exit,
        npub: "old".to_owned(),
        name: Some("old".to_owned()),
        own: false,
        offered: true,
        approved,
        used: false,
        why: String::new(),
    };
    all.networks[0].routes = vec![
        route("192.168.7.0/24", false, true),
        route("0.0.0.0/0", true, true),
        route("::/0", true, true),
        route("10.1.0.0/16", false, false),
    ];
    let text = to_approve(&routes_of(&all, None, "old"), "new");
    assert!(
        text.ends_with(":\n  weft route approve new 192.168.7.0/24\n  weft route approve new exit\n"),
        "{text}"
    );
    assert_eq!(to_approve(&routes_of(&all, None, "new"), "old"), "");
}

#[test]
fn one_administrator_is_said() {
    let alone = list(vec![member("desk", true, true)]);
    assert!(networks(&alone, 80).starts_with("home  1 member, this machine"));
    assert!(networks(&alone, 80).contains("one administrator, this machine"));
    assert!(hints(&alone, 200).contains("weft admin add MEMBER` makes"));
    let elsewhere = list(vec![member("desk", true, false), member("nas", false, true)]);
    assert!(networks(&elsewhere, 80).contains("one administrator, desk: `weft admin add MEMBER` there"));
    assert_eq!(hints(&elsewhere, 200), "");
    let two = list(vec![member("desk", true, true), member("nas", true, false)]);
    assert!(!networks(&two, 80).contains("administrator") && hints(&two, 200).is_empty());
}

#[test]
fn a_code_that_serves_one_network_says_so() {
    let mut made = Invited {
        schema: String::new(),
        code: "AE6EVC5O".to_owned(),
        network: Some("home".to_owned()),
        uses: 1,
        expires_unix: 0,
        addresses: vec![
            "192.168.1.5:2121".parse().unwrap(),
            "[2001:db8::5]:2121".parse().unwrap(),
        ],
        entry: None,
        local_only: true,
    };
    let text = invited(&made, "", 3_600);
    for part in ["other networks", "--address", "weft peer add", "public address"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(
        text.contains("Addresses in it: 192.168.1.5:2121, [2001:db8::5]:2121\n"),
        "{text}"
    );
    (made.local_only, made.entry) = (false, Some("203.0.113.7:2121".parse().unwrap()));
    let text = invited(&made, "", 3_600);
    assert!(text.contains(", 203.0.113.7:2121 of another member\n"), "{text}");
    assert!(!text.contains("other networks"), "{text}");
}

#[test]
fn a_newcomer_is_told_why_it_has_another_name() {
    let members = |own: &str| {
        let names = ["nas", "nas-2", "printer"].iter().filter(|name| **name != own);
        let mut members: Vec<MemberStatus> = names.map(|name| member(name, false, false)).collect();
        members.push(member(own, false, true));
        list(members)
    };
    let told = |own: &str, name: Option<&str>, chosen: bool| {
        let wanted = Wanted {
            name: name.map(str::to_owned),
            chosen,
            json: false,
        };
        not_as_wanted(&members(own).networks[0], &wanted)
    };
    assert_eq!(told("laptop", Some("laptop"), true), "");
    assert_eq!(told("nas-2", Some("nas-2"), true), "", "its own choice");
    let taken = told("nas-3", Some("nas"), false);
    assert_eq!(
        taken,
        "That is because nas is the name of another member. An administrator gives it another name: \
         weft member rename nas-3 NAME\n"
    );
    let invited = told("printer-2", Some("scanner"), false);
    assert!(invited.contains("printer is the name of another member"), "{invited}");
    let given = told("shed", Some("scanner"), true);
    assert!(
        given.contains("an administrator gave it this name in place of scanner"),
        "{given}"
    );
    assert_eq!(told("shed", Some("scanner"), false), "", "its host name is no choice");
    assert_eq!(told("shed", None, false), "");
}

#[test]
fn an_administrator_without_membership_is_listed() {
    let mut list = list(vec![member("nas", true, true)]);
    assert!(!members(&list, 80).contains("without membership"));
    list.networks[0].admins_outside.push("npub1x".to_owned());
    let line = "npub1x is an administrator without membership: `weft admin remove npub1x` ends its rights\n";
    assert!(members(&list, 80).contains(line));
}

#[test]
fn members_with_a_number_are_listed_with_the_reason() {
    let mut list = list(vec![member("nas", true, true), member("nas-2", false, false)]);
    list.networks[0].numbered.push(NumberedStatus {
        npub: "nas-2".to_owned(),
        name: Some("nas-2".to_owned()),
        wanted: "nas".to_owned(),
        holder: "nas".to_owned(),
    });
    let line =
        "nas-2 has a number because nas is this machine: `weft member rename nas-2 NAME` gives it another name.\n";
    for text in [
        networks(&list, 80),
        members(&list, 80),
        approved(list.networks.first(), "nas-2"),
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_machine_without_a_name_is_told_how_it_gets_one() {
    let mut all = list(vec![member("npub1a", true, true)]);
    assert!(!created(all.networks.first(), "weft0").contains("no name"));
    all.networks[0].members[0].name = None;
    let command = "weft member rename npub1a NAME";
    for text in [
        created(all.networks.first(), "weft0"),
        joined(&all.networks[0], "weft0", &Wanted::default()),
    ] {
        assert!(text.contains(command), "{text}");
    }
    assert!(
        members(&all, 200).contains("npub1a"),
        "the key is the only way to name it"
    );
}

#[test]
fn members_are_online_or_were_heard_some_time_ago() {
    let mut all = list(["a", "b", "c", "d"].map(|npub| member(npub, false, npub == "a")).into());
    let standings = [
        None,
        Some(Standing::Active),
        Some(Standing::Offline),
        Some(Standing::Offline),
    ];
    for (member, standing) in all.networks[0].members.iter_mut().zip(standings) {
        member.standing = standing;
    }
    all.networks[0].members[2].heard_s = Some(200);
    let text = members(&all, 200);
    for part in [
        "fd00::1  this machine\n",
        "online\n",
        "offline, heard 3 min ago\n",
        "offline, not heard yet\n",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    assert!(
        networks(&all, 200).contains("4 members, 2 online"),
        "{}",
        networks(&all, 200)
    );
}

#[test]
fn a_network_of_nvpn_names_no_command_that_changes_it() {
    let mut all = list(vec![member("npub1a", false, true), member("npub1b", true, false)]);
    all.networks[0].founded_with = Some("nvpn".to_owned());
    all.networks[0].why = "nvpn's administrators change it there".to_owned();
    let shown = networks(&all, 80);
    assert!(
        shown.contains(", founded with nvpn  0123\n") && shown.contains("change it there\n"),
        "{shown}"
    );
    let joined = joined(&all.networks[0], "weft0", &Wanted::default());
    for text in [&shown, &members(&all, 80), &hints(&all, 80), &joined] {
        assert!(!text.contains("weft member") && !text.contains("weft admin"), "{text}");
    }
    assert!(is_founded_with_nvpn(&all, Some("home")) && !is_founded_with_nvpn(&all, Some("office")));
}
