//! Records an HTTP/2 server and its clients, which know nothing of Annals: into `annals-run`, or into
//! the directory `ANNALS_DIR`. View it with `trace-cli regions annals-run`.

mod program;

use annals_recorder::{Options, Recorder};
use annals_tracing::AnnalsLayer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let recorder = Recorder::start(&Options::from_env()?)?;
    tracing_subscriber::registry()
        .with(AnnalsLayer::new(&recorder)?)
        .init();
    let echoed = program::run(program::Load {
        threads: 4,
        clients: 4,
        requests: 200,
    })?;
    let status = recorder.finish();
    println!(
        "{echoed} bytes echoed, {} events raised, {} dropped: {}",
        status.raised,
        status.dropped,
        status.path.display()
    );
    Ok(())
}
