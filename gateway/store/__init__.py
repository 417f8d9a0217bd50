"""Storage of commits and documents. Only this package imports the MongoDB driver."""
