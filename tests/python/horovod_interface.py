"""Horovod's public interface for torch, as signatures: what `test_horovod_namespace.py` holds ours against.

One line a name; defaults are evaluated among the names of `horovod.torch`. A method is written `Class.method`.
"""

_NAME = "name=None, process_set=global_process_set"
_SCALED = "op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set"
_SCATTERED = "op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0"

STATE = """
init(comm=None, process_sets=None)
shutdown()
is_initialized()
start_timeline(file_path, mark_cycles=False)
stop_timeline()
size()
local_size()
cross_size()
rank()
local_rank()
cross_rank()
is_homogeneous()
mpi_threads_supported()
mpi_enabled()
mpi_built()
gloo_enabled()
gloo_built()
nccl_built()
ddl_built()
ccl_built()
cuda_built()
rocm_built()
"""

PROCESS_SETS = """
ProcessSet.__init__(self, ranks_or_comm)
ProcessSet.size(self)
ProcessSet.rank(self)
ProcessSet.included(self)
add_process_set(process_set)
remove_process_set(process_set)
"""

OPERATIONS = f"""
allreduce(tensor, average=None, name=None, compression=Compression.none, {_SCALED})
allreduce_(tensor, average=None, name=None, {_SCALED})
allreduce_async(tensor, average=None, name=None, {_SCALED})
allreduce_async_(tensor, average=None, name=None, {_SCALED})
grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, {_SCALED})
grouped_allreduce_(tensors, average=None, name=None, {_SCALED})
grouped_allreduce_async(tensors, average=None, name=None, {_SCALED})
grouped_allreduce_async_(tensors, average=None, name=None, {_SCALED})
sparse_allreduce_async(tensor, name, op, process_set=global_process_set)
allgather(tensor, {_NAME})
allgather_async(tensor, {_NAME})
grouped_allgather(tensors, {_NAME})
grouped_allgather_async(tensors, {_NAME})
broadcast(tensor, root_rank, {_NAME})
broadcast_(tensor, root_rank, {_NAME})
broadcast_async(tensor, root_rank, {_NAME})
broadcast_async_(tensor, root_rank, {_NAME})
alltoall(tensor, splits=None, {_NAME})
alltoall_async(tensor, splits=None, {_NAME})
reducescatter(tensor, name=None, compression=Compression.none, {_SCATTERED})
reducescatter_async(tensor, name=None, {_SCATTERED})
grouped_reducescatter(tensors, name=None, compression=Compression.none, {_SCATTERED})
grouped_reducescatter_async(tensors, name=None, {_SCATTERED})
poll(handle)
synchronize(handle)
join(device=-1)
barrier(process_set=global_process_set)
"""

FUNCTIONS = """
broadcast_parameters(params, root_rank)
broadcast_optimizer_state(optimizer, root_rank, model=None)
broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set)
allgather_object(obj, name=None)
"""

OPTIMIZER = """
DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1, \
op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, \
process_set=global_process_set)
"""

RUN_ELASTIC = """
run(func)
"""

_HANDLER = """
{name}.__init__(self, {value})
{name}.save(self)
{name}.restore(self)
{name}.sync(self)
"""
_HANDLED = {
    "StateHandler": "value",
    "ModelStateHandler": "model",
    "OptimizerStateHandler": "optimizer",
    "SamplerStateHandler": "sampler",
}

TORCH_STATE = """
TorchState.__init__(self, model=None, optimizer=None, **kwargs)
TorchState.save(self)
TorchState.restore(self)
TorchState.sync(self)
StateHandler.set_value(self, value)
get_handler_registry()
set_handler_registry(registry)
""" + "".join(_HANDLER.format(name=name, value=value) for name, value in _HANDLED.items())

SAMPLER = """
ElasticSampler.__init__(self, dataset, shuffle=True, seed=0)
ElasticSampler.set_epoch(self, epoch)
ElasticSampler.record_batch(self, batch_idx, batch_size)
ElasticSampler.load_state_dict(self, state_dict)
ElasticSampler.state_dict(self)
ElasticSampler.reset(self)
"""

STATES = """
State.__init__(self, bcast_object, get_rank)
State.register_reset_callbacks(self, callbacks)
State.on_reset(self)
State.on_hosts_updated(self, timestamp, update_res)
State.commit(self)
State.check_host_updates(self)
State.save(self)
State.restore(self)
State.sync(self)
State.reset(self)
ObjectState.__init__(self, bcast_object, get_rank, **kwargs)
ObjectState.save(self)
ObjectState.restore(self)
ObjectState.sync(self)
run_fn(func, reset)
"""

SYNC_BATCH_NORM = """
SyncBatchNorm.__init__(self, num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
SyncBatchNorm.forward(self, input)
"""

COMPRESSORS = """
Compressor.compress(tensor)
Compressor.decompress(tensor, ctx)
NoneCompressor.compress(tensor)
NoneCompressor.decompress(tensor, ctx)
FP16Compressor.compress(tensor)
FP16Compressor.decompress(tensor, ctx)
"""

BASICS = (
    "".join(
        f"HorovodBasics.{line[: line.index('(')]}(self, {line[line.index('(') + 1 :]}\n"
        for line in STATE.split("\n")
        if line
    ).replace("(self, )", "(self)")
    + "HorovodBasics.__init__(self, pkg_path, *args)\n"
)

EXCEPTIONS = """
HostsUpdatedInterrupt.__init__(self, skip_sync)
get_version_mismatch_message(name, version, installed_version)
HorovodVersionMismatchError.__init__(self, name, version, installed_version)
"""

UTIL = """
get_ext_suffix()
get_extension_full_path(pkg_path, *args)
check_extension(ext_name, ext_env_var, pkg_path, *args)
extension_available(ext_base_name, verbose=False)
gpu_available(ext_base_name, verbose=False)
mpi_built(verbose=False)
gloo_built(verbose=False)
nccl_built(verbose=False)
ddl_built(verbose=False)
ccl_built(verbose=False)
env(**kwargs)
get_average_backwards_compatibility_fun(reduce_ops)
num_rank_is_power_2(num_rank)
split_list(l, n)
check_installed_version(name, version, exception=None)
is_iterable(x)
is_version_greater_equal_than(ver, target)
"""

DATA = """
BaseDataLoader.__len__(self)
BaseDataLoader.__iter__(self)
BaseDataLoader._iterate(self)
BaseDataLoader._process_batch(self, batch)
AsyncDataLoaderMixin.__init__(self, async_loader_queue_size=64, debug_data_loader=False, *args, **kwargs)
AsyncDataLoaderMixin.close_async_loader(self)
"""

RUN = """
run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None, reset_limit=None, \
cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, start_timeout=None, ssh_port=None, \
ssh_identity_file=None, disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None, \
mpi_args=None, network_interface=None, network_interfaces=None, executable=None, np=None, min_np=None, max_np=None)
"""

LAUNCH = """
check_build(verbose)
parse_args()
is_gloo_used(use_gloo=None, use_mpi=None, use_jsrun=None)
run_commandline()
make_check_build_action(np_arg)
make_override_action(override_args)
make_override_bool_action(override_args, bool_value)
make_override_true_action(override_args)
make_override_false_action(override_args)
make_deprecated_bool_action(override_args, bool_value, replacement_option, remove_version)
make_nic_action(deprecated)
run_controller(use_gloo, gloo_run, use_mpi, mpi_run, use_jsrun, js_run, verbosity)
"""

HOSTS = """
HostInfo.__init__(self, hostname, slots)
HostInfo.from_string(host_string)
SlotInfo.to_response_string(self)
parse_host_files(filename)
parse_hosts_and_slots(hosts)
parse_hosts(hosts_string)
get_host_assignments(hosts, min_num_proc, max_num_proc=None)
"""

SETTINGS = """
BaseSettings.__init__(self, num_proc=None, verbose=0, ssh_port=None, ssh_identity_file=None, extra_mpi_args=None, \
tcp_flag=None, binding_args=None, key=None, start_timeout=None, output_filename=None, run_func_mode=None, nics=None, \
elastic=False, prefix_output_with_timestamp=False)
Settings.__init__(self, hosts=None, **kwargs)
"""

ELASTIC_SETTINGS = """
ElasticSettings.__init__(self, discovery, min_num_proc, max_num_proc, elastic_timeout, reset_limit, \
cooldown_range=None, **kwargs)
"""

SHELL = """
terminate_executor_shell_and_children(pid)
prefix_connection(src_connection, dst_stream, prefix, index, prefix_output_with_timestamp)
execute(command, env=None, stdout=None, stderr=None, index=None, events=None, prefix_output_with_timestamp=False)
"""

DISCOVERY = """
HostDiscovery.find_available_hosts_and_slots(self)
HostDiscoveryScript.__init__(self, discovery_script, slots)
HostDiscoveryScript.find_available_hosts_and_slots(self)
FixedHosts.__init__(self, host_slots)
FixedHosts.find_available_hosts_and_slots(self)
FixedHosts.set(self, host_slots)
HostState.__init__(self, cooldown_range=None)
DiscoveredHosts.__init__(self, host_slots, host_assignment_order)
HostManager.__init__(self, discovery, cooldown_range=None)
"""

WORKER = """
HostsUpdatedRequest.__init__(self, timestamp, res)
WorkerNotificationManager.__init__(self)
WorkerNotificationService.__init__(self, key, nic, manager)
WorkerNotificationClient.__init__(self, addresses, key, verbose, match_intf=False)
"""

MPI_RUN = """
mpi_available(env=None)
is_open_mpi(env=None)
is_spectrum_mpi(env=None)
is_mpich(env=None)
is_intel_mpi(env=None)
mpi_run(settings, nics, env, command, stdout=None, stderr=None)
"""

JS_RUN = """
is_jsrun_installed()
js_run(settings, nics, env, command, stdout=None, stderr=None)
generate_jsrun_rankfile(settings, path=None)
"""

THREADS = """
execute_function_multithreaded(fn, args_list, block_until_all_done=True, max_concurrent_executions=1000)
in_thread(target, args=(), name=None, daemon=True, silent=False)
on_event(event, func, args=(), stop=None, check_stop_interval_s=1.0, daemon=True, silent=False)
"""

STREAMS = """
Pipe.__init__(self)
Pipe.write(self, buf)
Pipe.read(self, length=-1)
Pipe.flush(self)
Pipe.close(self)
"""

ENV = """
is_exportable(v)
get_env_rank_and_size()
is_kubeflow_mpi()
"""

CONFIG_PARSER = """
set_args_from_config(args, config, override_args)
validate_config_args(args)
set_env_from_args(env, args)
"""

CACHE = """
Cache.__init__(self, cache_folder, cache_staleness_threshold_in_minutes, parameters_hash)
Cache.get(self, key)
Cache.put(self, key, val)
Cache.parameters_hash(self)
use_cache()
"""

GLOO_RUN = """
MultiFile.__init__(self, files)
MultiFile.write(self, text)
MultiFile.flush(self)
create_slot_env_vars(slot_info)
create_run_env_vars(server_ip, nics, port, elastic=False)
get_run_command(command, server_ip, nics, port, elastic=False)
register_shutdown_event()
launch_gloo(command, exec_command, settings, nics, env, server_ip)
gloo_run(settings, nics, env, server_ip, command)
launch_gloo_elastic(command_or_func, exec_command, settings, env, get_common_interfaces, rendezvous, executable)
gloo_run_elastic(settings, env, command_or_func, executable)
"""

INTERFACE = {
    "horovod": RUN,
    "horovod.torch": STATE + PROCESS_SETS + OPERATIONS + FUNCTIONS + OPTIMIZER + SYNC_BATCH_NORM,
    "horovod.torch.mpi_ops": STATE + OPERATIONS,
    "horovod.torch.functions": FUNCTIONS,
    "horovod.torch.optimizer": OPTIMIZER,
    "horovod.torch.sync_batch_norm": SYNC_BATCH_NORM,
    "horovod.torch.elastic": RUN_ELASTIC,
    "horovod.torch.elastic.state": TORCH_STATE,
    "horovod.torch.elastic.sampler": SAMPLER,
    "horovod.torch.compression": COMPRESSORS,
    "horovod.common.basics": BASICS,
    "horovod.common.process_sets": PROCESS_SETS,
    "horovod.common.elastic": STATES,
    "horovod.common.exceptions": EXCEPTIONS,
    "horovod.common.util": UTIL,
    "horovod.data": DATA,
    "horovod.data.data_loader_base": DATA,
    "horovod.runner": RUN,
    "horovod.runner.launch": LAUNCH,
    "horovod.runner.common.util.hosts": HOSTS,
    "horovod.runner.common.util.settings": SETTINGS,
    "horovod.runner.common.util.safe_shell_exec": SHELL,
    "horovod.runner.elastic.discovery": DISCOVERY,
    "horovod.runner.elastic.settings": ELASTIC_SETTINGS,
    "horovod.runner.elastic.worker": WORKER,
    "horovod.runner.common.util.env": ENV,
    "horovod.runner.common.util.config_parser": CONFIG_PARSER,
    "horovod.runner.gloo_run": GLOO_RUN,
    "horovod.runner.mpi_run": MPI_RUN,
    "horovod.runner.js_run": JS_RUN,
    "horovod.runner.util.threads": THREADS,
    "horovod.runner.util.cache": CACHE,
    "horovod.runner.util.streams": STREAMS,
}

#: Names without parameters of their own.
OBJECTS = {
    "horovod.torch": "Adasum Average Max Min Product Sum Compression global_process_set HorovodInternalError",
    "horovod.torch.elastic": "TorchState ElasticSampler",
    "horovod.torch.mpi_ops": "Adasum Average Max Min Product Sum global_process_set",
    "horovod.torch.compression": "Compression",
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.process_sets": "global_process_set",
    "horovod.common.util": "_cache",
    "horovod.runner": "_HorovodArgs",
    "horovod.runner.launch": "_run",
    "horovod.runner.common.util.env": "LOG_LEVEL_STR IGNORE_REGEXES KUBEFLOW_MPI_EXEC",
    "horovod.runner.common.util.config_parser": "LOG_LEVELS HOROVOD_FUSION_THRESHOLD HOROVOD_CYCLE_TIME "
    "HOROVOD_CACHE_CAPACITY HOROVOD_HIERARCHICAL_ALLREDUCE HOROVOD_AUTOTUNE HOROVOD_AUTOTUNE_LOG HOROVOD_TIMELINE "
    "HOROVOD_TIMELINE_MARK_CYCLES HOROVOD_STALL_CHECK_DISABLE HOROVOD_STALL_CHECK_TIME_SECONDS "
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS HOROVOD_NUM_NCCL_STREAMS HOROVOD_LOG_LEVEL HOROVOD_LOG_HIDE_TIME "
    "NCCL_IB_DISABLE",
    "horovod.runner.elastic.worker": "HostUpdateResult",
    "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt HorovodVersionMismatchError",
}

_NO_DRIVER = "a part of a driver of another build: the launcher watches the hosts"

#: What Ciranda will not have, and why. A name without a module counts in every one.
NEVER = {
    "make_check_build_action": "a part of the parser, for itself",
    "make_override_action": "a part of the parser, for itself",
    "make_override_bool_action": "a part of the parser, for itself",
    "make_override_true_action": "a part of the parser, for itself",
    "make_override_false_action": "a part of the parser, for itself",
    "make_deprecated_bool_action": "a part of the parser, for itself",
    "make_nic_action": "a part of the parser, for itself",
    "HostState": _NO_DRIVER,
    "DiscoveredHosts": _NO_DRIVER,
    "HostManager": _NO_DRIVER,
    "HostsUpdatedRequest": _NO_DRIVER,
    "WorkerNotificationManager": _NO_DRIVER,
    "WorkerNotificationService": _NO_DRIVER,
    "WorkerNotificationClient": _NO_DRIVER,
    "generate_jsrun_rankfile": "jsrun is not used",
    "create_run_env_vars": "ranks meet through an authenticated store, not over HTTP",
    "get_run_command": "ranks meet through an authenticated store, not over HTTP",
    "launch_gloo": "each rank needs the job's secret, which no command line holds",
    "launch_gloo_elastic": _NO_DRIVER,
    "gloo_run_elastic": _NO_DRIVER,
}

#: Modules of Horovod that Ciranda will not have, and why.
NO_MODULES = {
    "horovod.runner.elastic.driver": _NO_DRIVER,
    "horovod.runner.elastic.registration": _NO_DRIVER,
    "horovod.runner.elastic.rendezvous": _NO_DRIVER,
    "horovod.runner.http.http_server": "ranks meet through an authenticated store, not over HTTP",
    "horovod.runner.http.http_client": "ranks meet through an authenticated store, not over HTTP",
    "horovod.runner.common.service.task_service": "there are no services that exchange pickles",
    "horovod.runner.common.service.driver_service": "there are no services that exchange pickles",
}

#: What Ciranda does not have yet. Whoever brings one may leave it here: it is then held to its signature.
NOT_YET: dict[str, str] = {}
