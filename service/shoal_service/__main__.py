"""`python -m shoal_service` is `shoal`."""

from shoal_service.entry import main

main()
