"""Durable state of named slots: arrangements in immutable files, commits, lease.

Knows nothing of flows, engines or Spark. Whoever runs ticks uses one of:

`headrace.state.checkpoint.DirectoryState`
    One shard in one process, for a run with a checkpoint folder:

        with DirectoryState.open(folder, bind, lambda manifest: {"3.groups": Form(thaw)}) as state:
            machine = Machine(program, state.slots)     # Mapping[str, MutableMapping]
            state.tick                                  # last committed tick, 0 before the first
            ...                                         # run tick state.tick + 1 on `state.slots`
            state.commit()                              # atomic; raises CheckpointInUse when fenced off

    A slot is a mapping: `.get(key)` (None where absent), `[key] = value`, `del [key]`. A value
    that was read may be changed in place until the commit. Values are plain data
    (see `codec`), never None.

`headrace.state.checkpoint.Checkpoint` and `headrace.state.shard.ShardState`
    The same in two halves, for ticks whose shards live in other processes: the
    driver holds the `Checkpoint` (lease, manifest, commits), a task opens the
    `ShardState` of a chain of files, runs, and gives the next chain back.

Slots are arrangements (`arranged_store`): sorted batches in a `chain` of files. A manifest describes
their columns. Slots whose values are no columns share one arrangement of encoded keys and values. A
`headrace.state.shard.ScratchFolder` has the same slots without commits, for a run with a limit of memory.

What a run goes on under is a `headrace.state.manifest.Manifest`, as a `Bind` says when one is opened.
`inspection` reads a checkpoint that others may be running, `rewind` goes back to a tick that is kept.

Nothing counts until a commit names it: every file is written aside, made
durable, and named by its tick and attempt.
"""
