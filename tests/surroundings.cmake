# Owns: what tests do not take from whoever runs them. ctest reads it before it runs any.
set(ENV{LC_ALL} C)      # awk, sort and printf write and read numbers with points
set(ENV{SHELL} /bin/sh) # by which `script` runs a command; an account's own may be one that runs none
unset(ENV{CDPATH})      # with which cd prints
unset(ENV{BASH_ENV})
unset(ENV{POSIXLY_CORRECT})
# A test is no rank of the job that it runs in.
foreach(variable RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID SLURM_STEP_ID)
  unset(ENV{${variable}})
endforeach()
