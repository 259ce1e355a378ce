//! rsync over ssh, through the same tunnel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use weft_lab::child::{LoggedChild, run_command};

use crate::files::succeed;
use crate::mesh::Mesh;
use crate::{LIMIT, Result};

const PORT: u16 = 2222;
const READY: Duration = Duration::from_secs(10);

/// An sshd of the receiver.
pub(crate) struct Ssh {
    key: PathBuf,
    _sshd: LoggedChild,
}

impl Ssh {
    /// Starts it at the mesh address.
    pub(crate) fn start(mesh: &Mesh, work: &Path) -> Result<Self> {
        succeed(command("rsync", &["--version"]))?;
        let [host_key, key] = ["host_key", "key"].map(|name| work.join(name));
        for path in [&host_key, &key] {
            let path = path.to_str().ok_or("a path outside of UTF-8")?;
            succeed(command("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", path]))?;
        }
        let config = work.join("sshd_config");
        let text = format!(
            "ListenAddress [{}]:{PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nPasswordAuthentication no\n",
            mesh.address(),
            host_key.display(),
            key.with_extension("pub").display(),
        );
        fs::write(&config, text)?;
        fs::create_dir_all("/run/sshd")?;
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.arg("-D").arg("-e").arg("-f").arg(&config);
        let sshd = LoggedChild::start(mesh.receiver(), sshd, &work.join("sshd.log"))?;
        let ssh = Self { key, _sshd: sshd };
        let end = Instant::now() + READY;
        loop {
            let mut login = Command::new("ssh");
            login
                .args(ssh.options().split(' ').skip(1))
                .arg(mesh.address().to_string())
                .arg("true");
            let output = mesh.sender().run(|| run_command(login, LIMIT))??;
            if output.status.success() {
                return Ok(ssh);
            }
            if Instant::now() > end {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
            }
        }
    }

    /// The remote shell; AES-GCM is the faster cipher of ssh on processors with AES.
    fn options(&self) -> String {
        format!(
            "ssh -p {PORT} -i {} -c aes128-gcm@openssh.com -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            self.key.display()
        )
    }

    /// Copies a folder into another one, and waits until the copy is on the disk.
    pub(crate) fn rsync(&self, mesh: &Mesh, from: &Path, to: &Path) -> Result<()> {
        let mut rsync = Command::new("rsync");
        rsync.args(["-a", "-e", &self.options()]).arg(from);
        rsync.arg(format!("[{}]:{}/", mesh.address(), to.display()));
        mesh.sender()
            .run(|| succeed(rsync).map_err(|error| error.to_string()))??;
        Ok(rustix::fs::syncfs(fs::File::open(to)?)?)
    }
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
