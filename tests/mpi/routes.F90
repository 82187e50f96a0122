! Calls functions of MPI by one of Fortran's ways, each family once, and prints how often it has called each of them.
! ROUTE: 1 mpif.h, 2 the module mpi, 8 the module mpi_f08. IERROR: with the last argument of each procedure, which mpi_f08 can do without.
! LARGE: with large counts. SPAWN: another process is started. OTHER: a part of the calls by another way (other.F90).
#if ROUTE == 8
#define HANDLE(kind) type(MPI_/**/kind)
#define STATUS(name) type(MPI_Status) :: name
#else
#define HANDLE(kind) integer
#define STATUS(name) integer, dimension(MPI_STATUS_SIZE) :: name
#endif
#ifdef IERROR
#define E , ierror
#define E0 ierror
#else
#define E
#define E0
#endif
#define C(name) call count('name'); call name

module counts
  implicit none
  character(48) :: names(256) = ''
  integer :: times(256) = 0
contains
  subroutine count(name)
    character(*), intent(in) :: name
    integer :: place
    do place = 1, size(names)
      if (names(place) == '') names(place) = name
      if (names(place) == name) then
        times(place) = times(place) + 1
        return
      end if
    end do
  end subroutine
  subroutine print_counts()
    integer :: place
    do place = 1, size(names)
      if (names(place) /= '') print '("COUNT ", a, 1x, i0)', trim(names(place)), times(place)
    end do
  end subroutine
end module

program routes
  use counts
#if ROUTE == 8
  use mpi_f08
  use, intrinsic :: iso_c_binding, only: c_ptr
#elif ROUTE == 2
  use mpi
#endif
  implicit none
#if ROUTE == 1
  include 'mpif.h'
#endif
  integer :: rank, ranks, before, next, ierror, wrong = 0
  HANDLE(Comm) :: parent
  C(MPI_Init)(E0)
  C(MPI_Comm_get_parent)(parent E)
  C(MPI_Comm_rank)(MPI_COMM_WORLD, rank E)
  C(MPI_Comm_size)(MPI_COMM_WORLD, ranks E)
  if (parent /= MPI_COMM_NULL) then
    call child()
  else
    before = mod(rank + ranks - 1, ranks)
    next = mod(rank + 1, ranks)
    call messages()
    call persistent()
    call collectives()
    call addresses()
    call neighbours()
    call communicators()
    call windows()
    call files()
#ifdef LARGE
    call large()
#endif
#ifdef OTHER
    call other_way(rank, ranks)
#endif
    call spawn()
  end if
  C(MPI_Finalize)(E0)
  print '("wrong ", i0)', wrong
  call print_counts()
contains

  subroutine check(is_right)
    logical, intent(in) :: is_right
    if (.not. is_right) wrong = wrong + 1
  end subroutine

  subroutine messages()
    integer, asynchronous :: sent(20), got(20)
    integer :: number, found
    logical :: flag
    HANDLE(Request) :: requests(2), request
    STATUS(status)
#if ROUTE == 8
    type(MPI_Status) :: statuses(2)
#else
    integer :: statuses(MPI_STATUS_SIZE, 2)
#endif
    character :: buffer(1000)
#if ROUTE == 8
    type(c_ptr) :: detached
#else
    integer(MPI_ADDRESS_KIND) :: detached
#endif
    sent = [(number + 100 * rank, number = 1, 20)]
    got = 0
    C(MPI_Irecv)(got, 20, MPI_INTEGER, before, 1, MPI_COMM_WORLD, request E)
    C(MPI_Send)(sent, 20, MPI_INTEGER, next, 1, MPI_COMM_WORLD E)
    C(MPI_Wait)(request, status E)
    C(MPI_Get_count)(status, MPI_INTEGER, found E)
    call check(found == 20 .and. got(20) == 20 + 100 * before)
    ! Not contiguous.
    got = 0
    C(MPI_Sendrecv)(sent(1:20:2), 10, MPI_INTEGER, next, 2, got(1:20:2), 10, MPI_INTEGER, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE E)
    call check(got(19) == 19 + 100 * before .and. got(2) == 0)
    C(MPI_Isend)(sent, 4, MPI_INTEGER, next, 3, MPI_COMM_WORLD, requests(1) E)
    C(MPI_Irecv)(got, 4, MPI_INTEGER, before, 3, MPI_COMM_WORLD, requests(2) E)
    C(MPI_Waitall)(2, requests, MPI_STATUSES_IGNORE E)
    C(MPI_Isend)(sent, 4, MPI_INTEGER, next, 4, MPI_COMM_WORLD, requests(1) E)
    C(MPI_Irecv)(got, 4, MPI_INTEGER, before, 4, MPI_COMM_WORLD, requests(2) E)
    C(MPI_Waitany)(2, requests, number, status E)
    flag = .false.
    do while (.not. flag)
      C(MPI_Testall)(2, requests, flag, statuses E)
    end do
    C(MPI_Isend)(sent, 4, MPI_INTEGER, next, 5, MPI_COMM_WORLD, request E)
    C(MPI_Probe)(before, 5, MPI_COMM_WORLD, status E)
    C(MPI_Recv)(got, 4, MPI_INTEGER, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE E)
    flag = .false.
    do while (.not. flag)
      C(MPI_Test)(request, flag, MPI_STATUS_IGNORE E)
    end do
    C(MPI_Buffer_attach)(buffer, 1000 E)
    C(MPI_Bsend)(sent, 4, MPI_INTEGER, next, 6, MPI_COMM_WORLD E)
    C(MPI_Recv)(got, 4, MPI_INTEGER, before, 6, MPI_COMM_WORLD, status E)
    call check(got(4) == 4 + 100 * before)
    C(MPI_Buffer_detach)(detached, found E)
  end subroutine

  subroutine persistent()
    integer, asynchronous :: sent, got
    integer :: step
    HANDLE(Request) :: requests(2)
    C(MPI_Send_init)(sent, 1, MPI_INTEGER, next, 7, MPI_COMM_WORLD, requests(1) E)
    C(MPI_Recv_init)(got, 1, MPI_INTEGER, before, 7, MPI_COMM_WORLD, requests(2) E)
    do step = 1, 3
      sent = step + 10 * rank
      C(MPI_Startall)(2, requests E)
      C(MPI_Waitall)(2, requests, MPI_STATUSES_IGNORE E)
      call check(got == step + 10 * before)
    end do
    C(MPI_Start)(requests(2) E)
    C(MPI_Start)(requests(1) E)
    C(MPI_Wait)(requests(1), MPI_STATUS_IGNORE E)
    C(MPI_Wait)(requests(2), MPI_STATUS_IGNORE E)
    C(MPI_Request_free)(requests(1) E)
    C(MPI_Request_free)(requests(2) E)
  end subroutine

  subroutine collectives()
    integer :: mine(4 * ranks), all(4 * ranks), counts_of(ranks), places(ranks), bytes(ranks), number, value
    HANDLE(Datatype) :: types(ranks)
    HANDLE(Request) :: request
    mine = rank + 1
    all = 0
    counts_of = 1
    places = [(number, number = 0, ranks - 1)]
    bytes = places * 4
    types = MPI_INTEGER
    C(MPI_Barrier)(MPI_COMM_WORLD E)
    C(MPI_Bcast)(mine, 4, MPI_INTEGER, 0, MPI_COMM_WORLD E)
    mine = rank + 1
    C(MPI_Bcast)(mine(2:8:2), 4, MPI_INTEGER, 1, MPI_COMM_WORLD E)
    call check(mine(4) == 2 .and. mine(3) == rank + 1)
    mine = rank + 1
    value = 1
    C(MPI_Allreduce)(MPI_IN_PLACE, value, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD E)
    call check(value == ranks)
    C(MPI_Reduce)(mine, all, 4, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD E)
    C(MPI_Gather)(mine, 1, MPI_INTEGER, all, 1, MPI_INTEGER, 0, MPI_COMM_WORLD E)
    C(MPI_Gatherv)(mine, 1, MPI_INTEGER, all, counts_of, places, MPI_INTEGER, 0, MPI_COMM_WORLD E)
    C(MPI_Scatter)(all, 1, MPI_INTEGER, mine, 1, MPI_INTEGER, 0, MPI_COMM_WORLD E)
    C(MPI_Scatterv)(all, counts_of, places, MPI_INTEGER, mine, 1, MPI_INTEGER, 0, MPI_COMM_WORLD E)
    C(MPI_Allgather)(mine, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD E)
    C(MPI_Allgatherv)(mine, 1, MPI_INTEGER, all, counts_of, places, MPI_INTEGER, MPI_COMM_WORLD E)
    call check(all(ranks) == ranks)
    C(MPI_Alltoall)(mine, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD E)
    C(MPI_Alltoallv)(mine, counts_of, places, MPI_INTEGER, all, counts_of, places, MPI_INTEGER, MPI_COMM_WORLD E)
    C(MPI_Alltoallw)(mine, counts_of, bytes, types, all, counts_of, bytes, types, MPI_COMM_WORLD E)
    C(MPI_Reduce_scatter)(mine, all, counts_of, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD E)
    C(MPI_Reduce_scatter_block)(mine, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD E)
    C(MPI_Scan)(mine, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD E)
    C(MPI_Exscan)(mine, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD E)
    C(MPI_Ibarrier)(MPI_COMM_WORLD, request E)
    C(MPI_Wait)(request, MPI_STATUS_IGNORE E)
    C(MPI_Ialltoallw)(mine, counts_of, bytes, types, all, counts_of, bytes, types, MPI_COMM_WORLD, request E)
    C(MPI_Wait)(request, MPI_STATUS_IGNORE E)
    C(MPI_Ialltoallv)(mine, counts_of, places, MPI_INTEGER, all, counts_of, places, MPI_INTEGER, MPI_COMM_WORLD, request E)
    C(MPI_Wait)(request, MPI_STATUS_IGNORE E)
  end subroutine

  ! Absolute addresses, and datatypes.
  subroutine addresses()
    integer, asynchronous :: value
    integer :: lengths(1), bytes
    integer(MPI_ADDRESS_KIND) :: place(1), low, extent
    HANDLE(Datatype) :: absolute, pair, nested
    value = rank
    lengths = 1
    C(MPI_Get_address)(value, place(1) E)
    C(MPI_Type_create_hindexed)(1, lengths, place, MPI_INTEGER, absolute E)
    C(MPI_Type_commit)(absolute E)
    C(MPI_Bcast)(MPI_BOTTOM, 1, absolute, 1, MPI_COMM_WORLD E)
    call check(value == 1)
    C(MPI_Type_free)(absolute E)
    C(MPI_Type_contiguous)(2, MPI_INTEGER, pair E)
    C(MPI_Type_vector)(2, 1, 2, pair, nested E)
    C(MPI_Type_commit)(nested E)
    C(MPI_Type_size)(nested, bytes E)
    call check(bytes == 16)
    C(MPI_Type_get_extent)(nested, low, extent E)
    C(MPI_Type_free)(pair E)
    C(MPI_Type_free)(nested E)
  end subroutine

  subroutine neighbours()
    integer :: sizes(1), place(1), from, to, mine(4), all(4), counts_of(2), places(2), dimensions, found, degree_in, degree_out
    integer :: sources(1), targets(1), weights(1)
    integer(MPI_ADDRESS_KIND) :: bytes(2)
    logical :: periods(1), kept(1), weighted
    HANDLE(Comm) :: ring, line, graph
    HANDLE(Datatype) :: types(2)
    sizes = ranks
    periods = .true.
    kept = .true.
    mine = rank
    counts_of = 1
    places = [0, 1]
    bytes = [0, 4]
    types = MPI_INTEGER
    C(MPI_Cart_create)(MPI_COMM_WORLD, 1, sizes, periods, .false., ring E)
    C(MPI_Cartdim_get)(ring, dimensions E)
    place = 0
    C(MPI_Cart_rank)(ring, place, found E)
    C(MPI_Cart_coords)(ring, rank, 1, place E)
    C(MPI_Cart_shift)(ring, 0, 1, from, to E)
    call check(from == before .and. to == next)
    C(MPI_Cart_sub)(ring, kept, line E)
    C(MPI_Neighbor_alltoall)(mine, 1, MPI_INTEGER, all, 1, MPI_INTEGER, ring E)
    call check(all(1) == before)
    C(MPI_Neighbor_allgather)(mine, 1, MPI_INTEGER, all, 1, MPI_INTEGER, ring E)
    C(MPI_Neighbor_allgatherv)(mine, 1, MPI_INTEGER, all, counts_of, places, MPI_INTEGER, ring E)
    C(MPI_Neighbor_alltoallv)(mine, counts_of, places, MPI_INTEGER, all, counts_of, places, MPI_INTEGER, ring E)
    sources = before
    targets = next
    weights = 1
    C(MPI_Dist_graph_create_adjacent)(MPI_COMM_WORLD, 1, sources, weights, 1, targets, weights, MPI_INFO_NULL, .false., graph E)
    C(MPI_Dist_graph_neighbors_count)(graph, degree_in, degree_out, weighted E)
    C(MPI_Neighbor_alltoallw)(mine, counts_of, bytes, types, all, counts_of, bytes, types, graph E)
    call check(all(1) == before)
    C(MPI_Comm_free)(line E)
    C(MPI_Comm_free)(ring E)
    C(MPI_Comm_free)(graph E)
  end subroutine

  subroutine communicators()
    integer :: members(1), place
    HANDLE(Comm) :: other, half, alone
    double precision :: seconds
    HANDLE(Group) :: group, first
    HANDLE(Request) :: request
    C(MPI_Comm_idup)(MPI_COMM_WORLD, other, request E)
    C(MPI_Wait)(request, MPI_STATUS_IGNORE E)
    C(MPI_Barrier)(other E)
    C(MPI_Comm_free)(other E)
    ! A procedure that ends with a jump.
    C(MPI_Pcontrol)(1)
    call count('MPI_Wtime')
    seconds = MPI_Wtime()
    C(MPI_Comm_dup)(MPI_COMM_WORLD, other E)
    C(MPI_Comm_split)(other, mod(rank, 2), rank, half E)
    C(MPI_Barrier)(half E)
    C(MPI_Comm_group)(other, group E)
    members = 0
    C(MPI_Group_incl)(group, 1, members, first E)
    C(MPI_Group_rank)(first, place E)
    C(MPI_Comm_create)(other, first, alone E)
    if (rank == 0) then
      C(MPI_Barrier)(alone E)
      C(MPI_Comm_free)(alone E)
    end if
    C(MPI_Group_free)(first E)
    C(MPI_Group_free)(group E)
    C(MPI_Comm_set_name)(half, 'half of the ranks' E)
    C(MPI_Comm_free)(half E)
    C(MPI_Comm_free)(other E)
  end subroutine

  subroutine windows()
    integer, asynchronous :: memory(4), mine(4), got(4)
    integer(MPI_ADDRESS_KIND), parameter :: nowhere = 0
    HANDLE(Win) :: window
    memory = 0
    mine = rank + 1
    C(MPI_Win_create)(memory, 16_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, window E)
    C(MPI_Win_fence)(0, window E)
    C(MPI_Put)(mine, 1, MPI_INTEGER, next, nowhere, 1, MPI_INTEGER, window E)
    C(MPI_Win_fence)(0, window E)
    call check(memory(1) == before + 1)
    C(MPI_Win_fence)(0, window E)
    C(MPI_Accumulate)(mine, 1, MPI_INTEGER, next, nowhere, 1, MPI_INTEGER, MPI_SUM, window E)
    C(MPI_Win_fence)(0, window E)
    C(MPI_Win_lock)(MPI_LOCK_SHARED, next, 0, window E)
    C(MPI_Get)(got, 1, MPI_INTEGER, next, nowhere, 1, MPI_INTEGER, window E)
    C(MPI_Win_flush)(next, window E)
    C(MPI_Win_unlock)(next, window E)
    call check(got(1) == 2 * (rank + 1))
    C(MPI_Win_free)(window E)
  end subroutine

  subroutine files()
    integer :: mine(4), got(4)
    integer(MPI_OFFSET_KIND) :: place
    character(512) :: path
    HANDLE(File) :: file
    STATUS(status)
    call get_command_argument(1, path)
    mine = rank
    place = rank * 16
    C(MPI_File_open)(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file E)
    C(MPI_File_write_at)(file, place, mine, 4, MPI_INTEGER, status E)
    C(MPI_File_sync)(file E)
    C(MPI_File_read_at_all)(file, place, got, 4, MPI_INTEGER, MPI_STATUS_IGNORE E)
    call check(all(got == rank))
    C(MPI_File_get_position)(file, place E)
    C(MPI_File_close)(file E)
  end subroutine

#ifdef LARGE
  subroutine large()
    integer, asynchronous :: value(2), got(2)
    integer(MPI_COUNT_KIND) :: length
    type(MPI_Request) :: request
    type(MPI_Datatype) :: pair
    length = 2
    value = rank
    call count('MPI_Irecv_c')
    call MPI_Irecv(got, length, MPI_INTEGER, before, 8, MPI_COMM_WORLD, request E)
    call count('MPI_Send_c')
    call MPI_Send(value, length, MPI_INTEGER, next, 8, MPI_COMM_WORLD E)
    C(MPI_Wait)(request, MPI_STATUS_IGNORE E)
    call check(got(2) == before)
    call count('MPI_Bcast_c')
    call MPI_Bcast(value, length, MPI_INTEGER, 0, MPI_COMM_WORLD E)
    call count('MPI_Type_contiguous_c')
    call MPI_Type_contiguous(length, MPI_INTEGER, pair E)
    C(MPI_Type_free)(pair E)
  end subroutine
#endif

  subroutine spawn()
    integer :: value
    character(512) :: path
    character(16) :: arguments(2)
    HANDLE(Comm) :: children
    call get_command_argument(0, path)
    arguments = [character(16) :: 'child', '']
#ifndef SPAWN
    ! The library cannot start processes: the call fails.
    C(MPI_Comm_set_errhandler)(MPI_COMM_WORLD, MPI_ERRORS_RETURN E)
    C(MPI_Comm_spawn)(trim(path), arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, MPI_ERRCODES_IGNORE E)
#else
    C(MPI_Comm_spawn)(trim(path), arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, MPI_ERRCODES_IGNORE E)
    if (rank == 0) then
      C(MPI_Recv)(value, 1, MPI_INTEGER, 0, 9, children, MPI_STATUS_IGNORE E)
      call check(value == 77)
    end if
    C(MPI_Comm_disconnect)(children E)
#endif
  end subroutine

  subroutine child()
    integer :: value
    value = 77
    C(MPI_Send)(value, 1, MPI_INTEGER, 0, 9, parent E)
    C(MPI_Comm_disconnect)(parent E)
  end subroutine
end program
