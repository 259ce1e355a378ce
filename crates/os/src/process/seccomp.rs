//! Restricting the system calls that a process can make: seccomp(2).
//!
//! The filter refuses calls that a tunnel never makes and that widen the attack surface of the
//! kernel or the reach of the process: other processes' memory, kernel code, mounts, namespaces,
//! keys, clocks, raw sockets. Calls newer than the list fail as unknown.
//! docs/decisions/0025-rights.md gives the reasons against a list of allowed calls.

use std::io;

use libc::sock_filter;

use crate::syscall;

/// System calls that are refused with EPERM.
#[rustfmt::skip]
const REFUSED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise, libc::SYS_kcmp,
    libc::SYS_pidfd_getfd, libc::SYS_move_pages, libc::SYS_migrate_pages,
    // Code in the kernel, and interfaces to it that a tunnel does not need.
    libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load, libc::SYS_kexec_file_load,
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_fanotify_init, libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter, libc::SYS_io_uring_register,
    // The tree of file systems, and calls that bypass its permissions.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_fsopen, libc::SYS_fsconfig,
    libc::SYS_fsmount, libc::SYS_fspick, libc::SYS_move_mount, libc::SYS_open_tree, libc::SYS_mount_setattr,
    libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_quotactl, libc::SYS_quotactl_fd, libc::SYS_mknodat,
    libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at,
    // Namespaces, and programs without a file.
    libc::SYS_unshare, libc::SYS_setns, libc::SYS_memfd_create, libc::SYS_execveat,
    // Keys.
    libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
    // The machine.
    libc::SYS_reboot, libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_clock_adjtime, libc::SYS_adjtimex,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_acct, libc::SYS_syslog, libc::SYS_vhangup,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")] libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")] libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")] libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")] libc::SYS_mknod,
];

/// The calls of the packet path are checked first: on kernels before Linux 5.11, which cache no
/// decision, each call pays for the instructions before its rule.
const FREQUENT: &[libc::c_long] = &[
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_readv,
    libc::SYS_epoll_pwait,
    libc::SYS_futex,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// The newest system call that the lists above consider: `mseal` of Linux 6.10. The C library
/// handles the absence of newer ones, as on older kernels.
const NEWEST: u32 = 462;

/// Namespaces that `clone` would make (`CLONE_NEW*`).
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Offsets of the fields of `struct seccomp_data` of `linux/seccomp.h` that the filter reads. Of
/// arguments, the low half.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

#[cfg(target_arch = "x86_64")]
const OUR_ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const OUR_ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OUR_ARCHITECTURE: Option<u32> = None;

/// Enforces the filter on the calling thread and on all threads and programs that it starts. Needs
/// `no_new_privs`. `netfilter`: netlink's sockets for the packet filter and for lists of sockets are
/// allowed, too.
///
/// # Errors
/// `Unsupported` for machines other than x86-64 and aarch64; the error of the system call.
pub(super) fn enforce(netfilter: bool) -> io::Result<()> {
    let architecture = OUR_ARCHITECTURE.ok_or(io::ErrorKind::Unsupported)?;
    let mut filter = program(architecture, netfilter);
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_mut_ptr(),
    };
    // Kernels before Linux 5.16 slow every branch of a filtered process down unless this flag is
    // set; this process runs no foreign code.
    let install = |flags: libc::c_ulong| {
        // SAFETY: the pointer leads to `program`, whose filter and length describe the vector above; the kernel copies it.
        let done = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        syscall::check(done as i32)
    };
    match install(libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW) {
        // Kernels before Linux 4.17 do not know the flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(0),
        done => done,
    }?;
    Ok(())
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

const fn error(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Emits the decision `then` if the comparison of the last loaded value with `k` holds.
fn decide(filter: &mut Vec<sock_filter>, condition: u16, k: u32, then: u32) {
    filter.push(sock_filter {
        code: condition,
        jt: 0,
        jf: 1,
        k,
    });
    filter.push(op(RETURN, then));
}

/// Emits rules about the arguments of one call, then the decision to allow it. `rules` begins with
/// a load.
fn with_arguments(filter: &mut Vec<sock_filter>, number: libc::c_long, rules: &[sock_filter]) {
    filter.push(sock_filter {
        code: IF_EQUAL,
        jt: 0,
        jf: rules.len() as u8 + 1,
        k: number as u32,
    });
    filter.extend_from_slice(rules);
    filter.push(op(RETURN, ALLOW));
}

fn program(architecture: u32, netfilter: bool) -> Vec<sock_filter> {
    let mut filter = vec![op(LOAD, ARCHITECTURE)];
    // Other architectures, such as 32-bit programs on a 64-bit kernel, number their calls
    // differently.
    filter.push(sock_filter {
        code: IF_EQUAL,
        jt: 1,
        jf: 0,
        k: architecture,
    });
    filter.push(op(RETURN, libc::SECCOMP_RET_KILL_PROCESS));
    filter.push(op(LOAD, NUMBER));
    for number in FREQUENT {
        decide(&mut filter, IF_EQUAL, *number as u32, ALLOW);
    }
    // This also refuses the calls of x32, whose numbers are above 2^30.
    decide(&mut filter, IF_ABOVE, NEWEST, error(libc::ENOSYS));
    // Its arguments are behind a pointer, which a filter cannot follow; the C library then uses
    // clone.
    decide(&mut filter, IF_EQUAL, libc::SYS_clone3 as u32, error(libc::ENOSYS));
    for number in REFUSED {
        decide(&mut filter, IF_EQUAL, *number as u32, error(libc::EPERM));
    }
    let clone = [
        op(LOAD, argument(0)),
        refuse(IF_ANY_BIT, NEW_NAMESPACES),
        op(RETURN, error(libc::EPERM)),
    ];
    with_arguments(&mut filter, libc::SYS_clone, &clone);
    with_arguments(&mut filter, libc::SYS_socket, &socket_rules(netfilter));
    // Typing into the terminal that the process was started from.
    let ioctl = [
        op(LOAD, argument(1)),
        refuse(IF_EQUAL, libc::TIOCSTI as u32),
        op(RETURN, error(libc::EPERM)),
        refuse(IF_EQUAL, libc::TIOCLINUX as u32),
        op(RETURN, error(libc::EPERM)),
    ];
    with_arguments(&mut filter, libc::SYS_ioctl, &ioctl);
    filter.push(op(RETURN, ALLOW));
    filter
}

/// Continues with the next instruction if the comparison holds, and skips it otherwise.
const fn refuse(condition: u16, k: u32) -> sock_filter {
    sock_filter {
        code: condition,
        jt: 0,
        jf: 1,
        k,
    }
}

/// Allows sockets of IP and Unix, and netlink's for interfaces and routes: with CAP_NET_ADMIN the
/// other families reach the packet filter, raw frames, and much code that is seldom used.
fn socket_rules(netfilter: bool) -> Vec<sock_filter> {
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    let mut rules = vec![op(LOAD, argument(0))];
    for family in families {
        rules.push(refuse(IF_EQUAL, family as u32));
        rules.push(op(RETURN, ALLOW));
    }
    rules.extend([
        sock_filter {
            code: IF_EQUAL,
            jt: 1,
            jf: 0,
            k: libc::AF_NETLINK as u32,
        },
        op(RETURN, error(libc::EAFNOSUPPORT)),
        op(LOAD, argument(2)),
    ]);
    if netfilter {
        for protocol in [libc::NETLINK_NETFILTER, libc::NETLINK_SOCK_DIAG] {
            rules.push(refuse(IF_EQUAL, protocol as u32));
            rules.push(op(RETURN, ALLOW));
        }
    }
    rules.extend([
        sock_filter {
            code: IF_EQUAL,
            jt: 1,
            jf: 0,
            k: libc::NETLINK_ROUTE as u32,
        },
        op(RETURN, error(libc::EPROTONOSUPPORT)),
    ]);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u32 = 0xc000_003e;

    /// Runs the program as the kernel does, with a call's number, architecture and arguments.
    fn run(filter: &[sock_filter], number: u32, architecture: u32, arguments: [u32; 3]) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let op = filter[at];
            at += 1;
            let holds = match op.code {
                LOAD => {
                    value = match op.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        k => arguments[(k as usize - 16) / 8],
                    };
                    continue;
                }
                RETURN => return op.k,
                IF_EQUAL => value == op.k,
                IF_ABOVE => value > op.k,
                IF_ANY_BIT => value & op.k != 0,
                other => panic!("{other:#x}"),
            };
            at += usize::from(if holds { op.jt } else { op.jf });
        }
    }

    #[test]
    fn the_filter_refuses_listed_calls_and_allows_frequent_ones() {
        let filter = program(HERE, false);
        assert!(filter.len() < 4096, "BPF_MAXINSNS");
        let decide = |number: libc::c_long, arguments| run(&filter, number as u32, HERE, arguments);
        for number in REFUSED {
            assert_eq!(decide(*number, [0; 3]), error(libc::EPERM), "{number}");
        }
        for number in FREQUENT.iter().chain(&[
            libc::SYS_openat,
            libc::SYS_mmap,
            libc::SYS_execve,
            libc::SYS_wait4,
            libc::SYS_getrandom,
            libc::SYS_bind,
            libc::SYS_setsockopt,
            libc::SYS_sched_setattr,
            libc::SYS_rseq,
        ]) {
            assert_eq!(decide(*number, [0; 3]), ALLOW, "{number}");
        }
        assert_eq!(decide(libc::SYS_clone3, [0; 3]), error(libc::ENOSYS));
        assert_eq!(decide(463, [0; 3]), error(libc::ENOSYS));
        assert_eq!(run(&filter, 0x4000_0000, HERE, [0; 3]), error(libc::ENOSYS));
        assert_eq!(run(&filter, 1, 0x4000_0003, [0; 3]), libc::SECCOMP_RET_KILL_PROCESS);
        let thread = (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_THREAD) as u32;
        assert_eq!(decide(libc::SYS_clone, [thread, 0, 0]), ALLOW);
        let space = thread | libc::CLONE_NEWUSER as u32;
        assert_eq!(decide(libc::SYS_clone, [space, 0, 0]), error(libc::EPERM));
        assert_eq!(
            decide(libc::SYS_ioctl, [0, libc::TIOCSTI as u32, 0]),
            error(libc::EPERM)
        );
        assert_eq!(
            decide(libc::SYS_ioctl, [0, libc::TIOCLINUX as u32, 0]),
            error(libc::EPERM)
        );
        assert_eq!(decide(libc::SYS_ioctl, [0, libc::FIONBIO as u32, 0]), ALLOW);
    }

    #[test]
    fn sockets_of_few_families() {
        let filter = program(HERE, false);
        let socket = |family: i32, protocol: i32| {
            run(
                &filter,
                libc::SYS_socket as u32,
                HERE,
                [family as u32, 3, protocol as u32],
            )
        };
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
            assert_eq!(socket(family, libc::IPPROTO_UDP), ALLOW);
        }
        assert_eq!(socket(libc::AF_NETLINK, libc::NETLINK_ROUTE), ALLOW);
        for protocol in [libc::NETLINK_NETFILTER, libc::NETLINK_SOCK_DIAG] {
            assert_eq!(socket(libc::AF_NETLINK, protocol), error(libc::EPROTONOSUPPORT));
        }
        let filter = program(HERE, true);
        let netlink = |protocol: i32| {
            let arguments = [libc::AF_NETLINK as u32, 3, protocol as u32];
            run(&filter, libc::SYS_socket as u32, HERE, arguments)
        };
        assert_eq!(netlink(libc::NETLINK_NETFILTER), ALLOW);
        assert_eq!(netlink(libc::NETLINK_SOCK_DIAG), ALLOW);
        assert_eq!(netlink(libc::NETLINK_ROUTE), ALLOW);
        assert_eq!(netlink(libc::NETLINK_AUDIT), error(libc::EPROTONOSUPPORT));
        for family in [libc::AF_PACKET, libc::AF_ALG, libc::AF_VSOCK, libc::AF_KEY, 99] {
            assert_eq!(socket(family, 0), error(libc::EAFNOSUPPORT), "{family}");
        }
    }
}
