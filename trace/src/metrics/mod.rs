//! Maps as metrics of Prometheus. While a session runs, a thread of its own answers `GET /metrics` and reads maps for each
//! request; programs and scripts notice nothing of it.

mod http;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use prometheus::TextEncoder;
use prometheus::proto::{Gauge, Metric, MetricFamily, MetricType};
use twinbpf_vm::map::MapOps;

use crate::errln;
use crate::error::Error;
use crate::plan::ObjectPlan;
use crate::sys;
use source::{Source, label};

/// Says how many entries of maps no series has.
const LEFT_OUT: &str = "twinbpf_entries_left_out";

/// The maps of a session that are metrics, and the port where they will be served.
#[derive(Debug)]
pub(crate) struct Metrics {
    listener: TcpListener,
    address: SocketAddr,
    /// Most series of a map.
    limit: usize,
    sources: Vec<Source>,
    /// The map of each name.
    names: BTreeMap<String, Arc<str>>,
}

/// A thread that serves them until this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Its end wakes the thread.
    _stop: UnixStream,
}

impl Metrics {
    /// Listens, and does not answer yet.
    ///
    /// # Errors
    /// The port is taken, or not allowed.
    pub(crate) fn bind(address: SocketAddr, limit: usize) -> Result<Metrics, Error> {
        let fail = |cause| Error::Listen { address, cause };
        let listener = TcpListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Metrics { listener, address, limit, sources: Vec::new(), names: BTreeMap::new() })
    }

    /// Adds the maps of an object, in its order. Gives those of which there is no metric, with the reason.
    ///
    /// # Errors
    /// Two maps have metrics of one name.
    pub(crate) fn add(&mut self, plan: &ObjectPlan, maps: &[Arc<dyn MapOps>]) -> Result<Vec<String>, Error> {
        let declarations = &plan.declarations;
        let implied = declarations.implied.iter().map(|(_, declared)| declared);
        let mut notes = Vec::new();
        for declared in declarations.declared.iter().chain(implied).filter(|declared| declared.is_served()) {
            let map = &maps[declared.map];
            let name = &map.spec().name;
            let Some(source) = Source::new(declared, map, &plan.object.name) else {
                notes.push(format!("map {name} is no metric: no value of it is a number"));
                continue;
            };
            for metric in source.names() {
                if let Some(other) = self.names.insert(metric.clone(), Arc::clone(name)) {
                    return Err(Error::Metric { name: metric, maps: [other, Arc::clone(name)] });
                }
            }
            self.sources.push(source);
        }
        Ok(notes)
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// No thread or descriptor can be had, or no map is a metric.
    pub(crate) fn serve(self) -> Result<Serving, Error> {
        if self.sources.is_empty() {
            return Err(Error::NoMetrics);
        }
        let fail = |cause| Error::System { what: "serve metrics", cause };
        let (stop, stopped) = UnixStream::pair().map_err(fail)?;
        errln!("twinbpf: metrics at http://{}/metrics", self.address);
        thread::Builder::new().name("metrics".to_owned()).spawn(move || self.answer(&stopped)).map_err(fail)?;
        Ok(Serving { _stop: stop })
    }

    fn answer(self, stopped: &UnixStream) {
        // Maps of which it is said that entries are left out.
        let mut said = BTreeSet::new();
        loop {
            match sys::poll(&[self.listener.as_fd(), stopped.as_fd()], None) {
                Ok(ready) if ready[1] => return,
                Ok(_) => {}
                Err(error) => return log::error!("metrics are not served any more: {error}"),
            }
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if let Err(error) = http::answer(&stream, || self.page(&mut said)) {
                        log::debug!("a request of {peer} for metrics: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => log::warn!("a connection for metrics is not accepted: {error}"),
            }
        }
    }

    /// The metrics of all maps as text.
    fn page(&self, said: &mut BTreeSet<Arc<str>>) -> Result<String, String> {
        let (mut families, mut left_out) = (Vec::new(), Vec::new());
        for source in &self.sources {
            let (of_map, count) = source.families(self.limit)?;
            families.extend(of_map.into_iter().filter(|family| !family.get_metric().is_empty()));
            let name = source.map();
            if count > 0 && said.insert(Arc::clone(name)) {
                errln!(
                    "twinbpf: warning: metrics: {count} entries of map {name} are no series: there are {} at most \
                     (--metrics-series)",
                    self.limit
                );
            }
            if said.contains(name) {
                let mut gauge = Gauge::default();
                gauge.set_value(count as f64);
                let mut metric = Metric::from_gauge(gauge);
                metric.set_label(vec![label("map", name)]);
                left_out.push(metric);
            }
        }
        if !left_out.is_empty() {
            let mut family = MetricFamily::default();
            family.set_name(LEFT_OUT.to_owned());
            family.set_help("Entries of a map that are no series, for there are too many.".to_owned());
            family.set_field_type(MetricType::GAUGE);
            family.set_metric(left_out);
            families.push(family);
        }
        TextEncoder::new().encode_to_string(&families).map_err(|error| error.to_string())
    }
}
