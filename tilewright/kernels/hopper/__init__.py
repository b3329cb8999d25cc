"""The hopper family: implicit GEMM by wgmma and the copy engine of sm_90a.

Each module uses those above it alone:

==============  ==========================================================================================
``ways``        how the input may be read (``x``): as it is, copied before, gathered, turned ...
``sum``         what is multiplied, the steps of the sum and its shares
``planes``      of x in nchw, read as it is: how rows of pixels are cut
``raster``      places of pixels; tiles of them, patches of the input under them
``image``       what the copy engine is told of the input; where threads copy it instead (``pieces``)
``finish``      who finishes sums and stores them
``layout``      where things lie in shared memory
``tile``        how many tiles, threads and registers; whether blocks stay
``rules``       which configs are legal
``work``        counts for the model, with their fitted constants
``halves``      what runs before, for numbers that are split into two of f16
``fallback``    what runs behind these, and makes right what that split lost
``blueprint``   launches, buffers and defines of a config
``spec``        the family: which layers it takes, its tunables
==============  ==========================================================================================

The kernel is ``hopper.cu``; its headers follow a block: ``hopper_tile.h`` (knobs, patches, products),
``hopper_send.h`` (barriers, who copies), ``hopper_multiply.h`` (the main loop), then ``hopper_own.h`` or
``hopper_store.h``, as ``finish`` says. ``hopper_turn.h`` and ``hopper_lead.h`` are of one way each.
"""
